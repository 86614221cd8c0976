/* SPDX-License-Identifier: Apache-2.0 */
/* Chains of transforms that the input draws, over a picture of its size: a chain is refused with a message, or changes
 * the picture within its memory. */
#include "data/data_internal.h"
#include <lightc/transforms.h>

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct input {
    const uint8_t *at, *end;
} input;

static int byte(input *in)
{
    return in->at < in->end ? *in->at++ : 0;
}

/* From -1 to 2, in hundredths or so. */
static double number(input *in)
{
    return byte(in) / 85.0 - 1;
}

static lc_range range(input *in)
{
    const double from = number(in);
    return LC_RANGE(from, byte(in) % 2 ? from : number(in));
}

/* None, or one of up to 4 numbers. */
static lc_color color(input *in)
{
    lc_color c = {.n = byte(in) % 8 - 3};
    if (c.n < 0) c.n = 0;
    for (int i = 0; i < c.n; i++) c.of[i] = byte(in) * 1.01;
    return c;
}

static lc_status draw_size(input *in, int kind, lc_transform *t)
{
    const int64_t h = byte(in) % 40, w = byte(in) % 40;
    const lc_resample mode = (lc_resample)(byte(in) % 5);
    const lc_padding_mode pad = (lc_padding_mode)(byte(in) % 5);
    const lc_color c = color(in);
    switch (kind) {
    case 0:
        return lc_transform_resize(t, .height = h, .width = w, .interpolation = mode, .antialias = byte(in) % 2);
    case 1:
        return lc_transform_resize(t, .shorter = h, .max_size = w, .interpolation = mode);
    case 2:
        return lc_transform_center_crop(h, w, t);
    case 3:
        return lc_transform_pad(h % 8, w % 8, byte(in) % 8, byte(in) % 8, t, .padding_mode = pad,
                                .fill = c.n ? 0 : byte(in), .fill_color = c);
    case 4:
        return lc_transform_random_crop(h, w, t, .padding = LC_DIMS(byte(in) % 6, byte(in) % 6), .padding_mode = pad,
                                        .pad_if_needed = byte(in) % 2);
    default:
        return lc_transform_random_resized_crop(h, w, t, .scale = range(in), .ratio = range(in), .interpolation = mode);
    }
}

static lc_status draw_place(input *in, int kind, lc_transform *t)
{
    const lc_resample mode = (lc_resample)(byte(in) % 4);
    const lc_range turn = LC_RANGE(180 * number(in), 180 * number(in));
    switch (kind) {
    case 0:
        return lc_transform_horizontal_flip(number(in), t);
    case 1:
        return lc_transform_vertical_flip(number(in), t);
    case 2:
        return lc_transform_random_rotation(turn, t, .interpolation = mode, .center_x = byte(in), .center_y = byte(in));
    case 3:
        return lc_transform_random_rotation(LC_RANGE(90 * (byte(in) % 5), 360), t, .interpolation = mode,
                                            .fill_color = color(in));
    case 4:
        return lc_transform_random_affine(turn, t, .translate_x = number(in), .translate_y = number(in),
                                          .scale = range(in), .shear_x = turn, .interpolation = mode);
    default:
        return lc_transform_random_perspective(t, .distortion_scale = number(in), .p = number(in),
                                               .interpolation = mode);
    }
}

static lc_status draw_color(input *in, int kind, lc_transform *t)
{
    const lc_range r = range(in);
    const lc_color c = color(in);
    switch (kind) {
    case 0:
        return lc_transform_color_jitter(t, .brightness = r, .contrast = range(in), .saturation = range(in),
                                         .hue = range(in));
    case 1:
        return lc_transform_grayscale(byte(in) % 4, t);
    case 2:
        return lc_transform_gaussian_blur(byte(in) % 16, byte(in) % 16, t, .sigma = r);
    case 3:
        return lc_transform_random_erasing(t, .p = number(in), .scale = r, .ratio = range(in),
                                           .value = c.n ? 0 : byte(in), .value_color = c);
    case 4:
        return lc_transform_to_layout((lc_layout)(byte(in) % 3), t);
    default:
        return lc_transform_to_dtype((lc_dtype)(byte(in) % 10), t, .scale = byte(in) % 2);
    }
}

static lc_status draw_policy(input *in, int kind, lc_transform *t)
{
    const lc_resample mode = (lc_resample)(byte(in) % 3 * 2);
    switch (kind) {
    case 0:
        return lc_transform_auto_augment(t, .policy = (lc_auto_augment_policy)(byte(in) % 4), .interpolation = mode);
    case 1:
        return lc_transform_rand_augment(t, .num_ops = byte(in) % 4, .magnitude = byte(in) % 32,
                                         .fill_color = color(in));
    case 2:
        return lc_transform_trivial_augment_wide(t, .num_magnitude_bins = byte(in), .interpolation = mode);
    default:
        return lc_transform_normalize(3, (double[]){number(in), 0, 1}, (double[]){number(in), 1, 2}, t);
    }
}

static lc_status draw(input *in, lc_transform *t)
{
    const int kind = byte(in);
    switch (kind % 4) {
    case 0:
        return draw_size(in, kind / 4 % 6, t);
    case 1:
        return draw_place(in, kind / 4 % 6, t);
    case 2:
        return draw_color(in, kind / 4 % 6, t);
    default:
        return draw_policy(in, kind / 4 % 4, t);
    }
}

static lc_dataset *picture(input *in)
{
    static uint8_t pixels[4 * 32 * 32];
    lc_dataset *d;
    lc_array a = {.field = {.name = "x",
                            .dtype = LC_U8,
                            .layout = byte(in) % 2 ? LC_CHANNELS_LAST : LC_ROW_MAJOR,
                            .ndim = 3,
                            .shape = {1 + byte(in) % 4, 1 + byte(in) % 32, 1 + byte(in) % 32}},
                  .data = pixels};
    for (size_t i = 0; i < sizeof pixels; i++) pixels[i] = (uint8_t)(i * 37 + i / 11);
    return lc_array_dataset_new(1, 1, &a, &d) < 0 ? NULL : d;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input in = {data, data + size};
    lc_dataset *d = picture(&in);
    if (!d) abort();
    for (int n = 1 + byte(&in) % 5; n > 0; n--) {
        lc_transform t;
        lc_dataset *next;
        if (draw(&in, &t) < 0 || lc_dataset_transform(d, 0, t, &next) < 0) {
            if (!*lc_error_message()) abort();
            break;
        }
        lc_dataset_unref(d);
        d = next;
    }
    void *out = malloc(lc_field_bytes(&lc_dataset_spec(d)->fields[0]));
    for (uint64_t key = 0; out && key < 4; key++)
        if (lc_dataset_read(d, 0, key, &out) < 0 && !*lc_error_message()) abort();
    free(out);
    lc_dataset_unref(d);
    return 0;
}

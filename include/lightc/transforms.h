/* SPDX-License-Identifier: Apache-2.0 */
/* Transforms of pictures and numbers, for lc_dataset_transform and for datasets of pictures (lc_image_args.transform).
 *
 * Names, defaults and results are those of torchvision.transforms.v2 with tensors of bytes: results agree within 1 of
 * 255. Random numbers are drawn from the sample's key, so they are the same for any number of workers and ranks, and
 * after a resume; they are not those that PyTorch draws.
 *
 * Pictures are C,H,W in either layout, or H,W; the layout stays. Crops, flips, padding and erasing take any data type.
 * Resizing, warping, blurs and colors take bytes (u8), so they come before lc_transform_normalize; colors and the
 * policies need 1 or 3 channels.
 *
 * Labels that belong to places in a picture (boxes, masks) do not move with it. */
#ifndef LIGHTC_TRANSFORMS_H
#define LIGHTC_TRANSFORMS_H

#include <lightc/data.h>
#include <lightc/ops_types.h>

LC_BEGIN_DECLS

/* The range that a number is drawn from; with equal ends it is always that number. */
typedef struct lc_range {
    double from, to;
} lc_range;
#define LC_RANGE(from, to) LC_LITERAL(lc_range, (from), (to))

/* A number for each channel; it takes the place of the one that all channels have: .fill_color = LC_COLOR(124, 116,
 * 104). As many as the picture has channels, or one. */
enum { LC_MAX_COLOR = 16 };
typedef struct lc_color {
    int n; /* 0: none is given */
    double of[LC_MAX_COLOR];
} lc_color;
#define LC_COLOR(...) LC_LITERAL(lc_color, LC_COUNT(__VA_ARGS__), {__VA_ARGS__})

/* How a pixel between those of the source is computed. */
typedef enum lc_resample {
    LC_RESAMPLE_NEAREST = 0,
    LC_RESAMPLE_NEAREST_EXACT, /* only for resizing */
    LC_RESAMPLE_BILINEAR,
    LC_RESAMPLE_BICUBIC, /* only for resizing */
} lc_resample;

/* The pixels that are added around a picture. */
typedef enum lc_padding_mode {
    LC_PAD_CONSTANT = 0, /* all have one value */
    LC_PAD_EDGE,         /* the nearest pixel at the edge */
    LC_PAD_REFLECT,      /* the picture mirrored, without its edge: c b | a b c */
    LC_PAD_SYMMETRIC,    /* the picture mirrored: b a | a b c */
} lc_padding_mode;

/* ================================================= numbers ==================================================== */

/* u8 -> f32 in [0,1]. */
LC_API lc_status lc_transform_to_tensor(lc_transform *out) LC_MUST_USE;
/* (x - mean[c]) / std[c]; n is the number of channels, or 1 for all. f32 -> f32; of u8 first x / 255, which is faster
 * than to_tensor before it, and gives the same numbers within rounding. */
LC_API lc_status lc_transform_normalize(int n, const double *mean, const double *std, lc_transform *out) LC_MUST_USE;

typedef struct lc_transform_to_dtype_args {
    size_t size;
    bool scale; /* u8 / 255 on its way to floats. Otherwise the numbers stay */
} lc_transform_to_dtype_args;
LC_DEFAULTS(lc_transform_to_dtype, lc_transform_to_dtype_args, )
/* Another data type: lc_transform_to_dtype(LC_BF16, &t, .scale = true). All become floats, and whole numbers those that
 * hold all their values (u8 -> i32, i64; i32 -> i64). */
#define lc_transform_to_dtype(dtype, ...)                                                                              \
    LC_CALL_NEW_(lc_transform_to_dtype, lc_transform_to_dtype, (dtype, ), __VA_ARGS__, )
LC_API lc_status lc_transform_to_dtype_with(lc_dtype dtype, lc_transform *out,
                                            const lc_transform_to_dtype_args *args) LC_MUST_USE;
/* Another layout in memory: LC_ROW_MAJOR is channel after channel. */
LC_API lc_status lc_transform_to_layout(lc_layout layout, lc_transform *out) LC_MUST_USE;
/* An integer label -> f32 [..., classes]. */
LC_API lc_status lc_transform_one_hot(int64_t classes, lc_transform *out) LC_MUST_USE;

/* ============================================== size and place ================================================ */

typedef struct lc_transform_resize_args {
    size_t size;
    int64_t height, width; /* both, or */
    int64_t shorter;       /* the length of the shorter side, which keeps the ratio; with */
    int64_t max_size;      /* the most that the longer side may have then; 0: no limit */
    lc_resample interpolation;
    bool antialias; /* of bilinear and bicubic: when a picture shrinks, all of its pixels count */
} lc_transform_resize_args;
LC_DEFAULTS(lc_transform_resize, lc_transform_resize_args, .interpolation = LC_RESAMPLE_BILINEAR, .antialias = true)
/* lc_transform_resize(&t, .shorter = 256) */
#define lc_transform_resize(...) LC_CALL_NEW_(lc_transform_resize, lc_transform_resize, (), __VA_ARGS__, )
LC_API lc_status lc_transform_resize_with(lc_transform *out, const lc_transform_resize_args *args) LC_MUST_USE;

/* The middle; a picture that is smaller gets zeros around it. */
LC_API lc_status lc_transform_center_crop(int64_t height, int64_t width, lc_transform *out) LC_MUST_USE;

typedef struct lc_transform_pad_args {
    size_t size;
    double fill; /* the value of LC_PAD_CONSTANT */
    lc_padding_mode padding_mode;
    lc_color fill_color; /* in place of `fill` */
} lc_transform_pad_args;
LC_DEFAULTS(lc_transform_pad, lc_transform_pad_args, )
/* Adds rows and columns. */
#define lc_transform_pad(left, top, right, bottom, ...)                                                                \
    LC_CALL_NEW_(lc_transform_pad, lc_transform_pad, (left, top, right, bottom, ), __VA_ARGS__, )
LC_API lc_status lc_transform_pad_with(int64_t left, int64_t top, int64_t right, int64_t bottom, lc_transform *out,
                                       const lc_transform_pad_args *args) LC_MUST_USE;

typedef struct lc_transform_random_crop_args {
    size_t size;
    lc_dims padding;    /* first added: one number for all sides, two (left and right, top and bottom), or four (left,
                           top, right, bottom) */
    bool pad_if_needed; /* a picture that is still smaller than the crop is padded on both sides; else an error */
    double fill;
    lc_padding_mode padding_mode;
    lc_color fill_color; /* in place of `fill` */
} lc_transform_random_crop_args;
LC_DEFAULTS(lc_transform_random_crop, lc_transform_random_crop_args, )
/* A part at a random place: lc_transform_random_crop(32, 32, &t, .padding = LC_DIMS(4)). */
#define lc_transform_random_crop(height, width, ...)                                                                   \
    LC_CALL_NEW_(lc_transform_random_crop, lc_transform_random_crop, (height, width, ), __VA_ARGS__, )
LC_API lc_status lc_transform_random_crop_with(int64_t height, int64_t width, lc_transform *out,
                                               const lc_transform_random_crop_args *args) LC_MUST_USE;

typedef struct lc_transform_random_resized_crop_args {
    size_t size;
    lc_range scale; /* the part's share of the area */
    lc_range ratio; /* its width divided by its height */
    lc_resample interpolation;
    bool antialias;
} lc_transform_random_resized_crop_args;
LC_DEFAULTS(lc_transform_random_resized_crop, lc_transform_random_resized_crop_args, .scale = LC_RANGE(0.08, 1.0),
            .ratio = LC_RANGE(3.0 / 4.0, 4.0 / 3.0), .interpolation = LC_RESAMPLE_BILINEAR, .antialias = true)
/* A part of random size, shape and place, resized to height x width. */
#define lc_transform_random_resized_crop(height, width, ...)                                                           \
    LC_CALL_NEW_(lc_transform_random_resized_crop, lc_transform_random_resized_crop, (height, width, ), __VA_ARGS__, )
LC_API lc_status lc_transform_random_resized_crop_with(int64_t height, int64_t width, lc_transform *out,
                                                       const lc_transform_random_resized_crop_args *args) LC_MUST_USE;

/* Swaps left and right, or top and bottom, with probability p. */
LC_API lc_status lc_transform_horizontal_flip(double p, lc_transform *out) LC_MUST_USE;
LC_API lc_status lc_transform_vertical_flip(double p, lc_transform *out) LC_MUST_USE;

/* ================================================== warping =================================================== */

/* Pictures keep their size (no `expand`: pad before the rotation). The interpolation is nearest or bilinear. Pixels
 * from beyond the source have the value `fill`, or that of their channel in `fill_color`. */

typedef struct lc_transform_random_rotation_args {
    size_t size;
    lc_resample interpolation;
    double fill;
    double center_x, center_y; /* in pixels from the upper left corner; LC_NOT_GIVEN: the middle */
    lc_color fill_color;
} lc_transform_random_rotation_args;
LC_DEFAULTS(lc_transform_random_rotation, lc_transform_random_rotation_args, .center_x = LC_NOT_GIVEN,
            .center_y = LC_NOT_GIVEN)
/* Rotates by an angle in degrees, against the clock: lc_transform_random_rotation(LC_RANGE(-30, 30), &t). */
#define lc_transform_random_rotation(degrees, ...)                                                                     \
    LC_CALL_NEW_(lc_transform_random_rotation, lc_transform_random_rotation, (degrees, ), __VA_ARGS__, )
LC_API lc_status lc_transform_random_rotation_with(lc_range degrees, lc_transform *out,
                                                   const lc_transform_random_rotation_args *args) LC_MUST_USE;

typedef struct lc_transform_random_affine_args {
    size_t size;
    double translate_x, translate_y; /* at most this share of the width, and of the height, to either side */
    lc_range scale;
    lc_range shear_x, shear_y; /* in degrees */
    lc_resample interpolation;
    double fill;
    double center_x, center_y; /* as above */
    lc_color fill_color;
} lc_transform_random_affine_args;
LC_DEFAULTS(lc_transform_random_affine, lc_transform_random_affine_args, .scale = LC_RANGE(1, 1),
            .center_x = LC_NOT_GIVEN, .center_y = LC_NOT_GIVEN)
/* Rotates with the clock by an angle in degrees, shears, scales and moves. */
#define lc_transform_random_affine(degrees, ...)                                                                       \
    LC_CALL_NEW_(lc_transform_random_affine, lc_transform_random_affine, (degrees, ), __VA_ARGS__, )
LC_API lc_status lc_transform_random_affine_with(lc_range degrees, lc_transform *out,
                                                 const lc_transform_random_affine_args *args) LC_MUST_USE;

typedef struct lc_transform_random_perspective_args {
    size_t size;
    double distortion_scale; /* each corner moves by up to this share of half the width and height, inwards */
    double p;
    lc_resample interpolation;
    double fill;
    lc_color fill_color;
} lc_transform_random_perspective_args;
LC_DEFAULTS(lc_transform_random_perspective, lc_transform_random_perspective_args, .distortion_scale = 0.5, .p = 0.5,
            .interpolation = LC_RESAMPLE_BILINEAR)
#define lc_transform_random_perspective(...)                                                                           \
    LC_CALL_NEW_(lc_transform_random_perspective, lc_transform_random_perspective, (), __VA_ARGS__, )
LC_API lc_status lc_transform_random_perspective_with(lc_transform *out,
                                                      const lc_transform_random_perspective_args *args) LC_MUST_USE;

/* ================================================== colors ==================================================== */

typedef struct lc_transform_color_jitter_args {
    size_t size;
    /* Factors, at least 0; 1 changes nothing. torchvision's brightness=0.4 is LC_RANGE(0.6, 1.4). */
    lc_range brightness, contrast, saturation;
    lc_range hue; /* a turn of the color circle, from -0.5 to 0.5; 0 changes nothing */
} lc_transform_color_jitter_args;
LC_DEFAULTS(lc_transform_color_jitter, lc_transform_color_jitter_args, .brightness = LC_RANGE(1, 1),
            .contrast = LC_RANGE(1, 1), .saturation = LC_RANGE(1, 1))
/* In a random order. */
#define lc_transform_color_jitter(...)                                                                                 \
    LC_CALL_NEW_(lc_transform_color_jitter, lc_transform_color_jitter, (), __VA_ARGS__, )
LC_API lc_status lc_transform_color_jitter_with(lc_transform *out,
                                                const lc_transform_color_jitter_args *args) LC_MUST_USE;
/* Gray, in 1 channel or 3 equal ones. */
LC_API lc_status lc_transform_grayscale(int channels, lc_transform *out) LC_MUST_USE;
/* Gray with probability p; the channels stay as many. */
LC_API lc_status lc_transform_random_grayscale(double p, lc_transform *out) LC_MUST_USE;

typedef struct lc_transform_gaussian_blur_args {
    size_t size;
    lc_range sigma; /* in pixels */
} lc_transform_gaussian_blur_args;
LC_DEFAULTS(lc_transform_gaussian_blur, lc_transform_gaussian_blur_args, .sigma = LC_RANGE(0.1, 2.0))
/* The kernel has height x width weights, each odd and at most 511. */
#define lc_transform_gaussian_blur(height, width, ...)                                                                 \
    LC_CALL_NEW_(lc_transform_gaussian_blur, lc_transform_gaussian_blur, (height, width, ), __VA_ARGS__, )
LC_API lc_status lc_transform_gaussian_blur_with(int64_t height, int64_t width, lc_transform *out,
                                                 const lc_transform_gaussian_blur_args *args) LC_MUST_USE;

typedef struct lc_transform_random_erasing_args {
    size_t size;
    double p;
    lc_range scale;       /* the rectangle's share of the area */
    lc_range ratio;       /* its height divided by its width */
    double value;         /* what its pixels become */
    bool random;          /* they become normal numbers instead; for f32 only */
    lc_color value_color; /* in place of `value` */
} lc_transform_random_erasing_args;
LC_DEFAULTS(lc_transform_random_erasing, lc_transform_random_erasing_args, .p = 0.5, .scale = LC_RANGE(0.02, 0.33),
            .ratio = LC_RANGE(0.3, 3.3))
#define lc_transform_random_erasing(...)                                                                               \
    LC_CALL_NEW_(lc_transform_random_erasing, lc_transform_random_erasing, (), __VA_ARGS__, )
LC_API lc_status lc_transform_random_erasing_with(lc_transform *out,
                                                  const lc_transform_random_erasing_args *args) LC_MUST_USE;

/* ================================================= policies =================================================== */

typedef enum lc_auto_augment_policy {
    LC_AUTO_AUGMENT_IMAGENET = 0,
    LC_AUTO_AUGMENT_CIFAR10,
    LC_AUTO_AUGMENT_SVHN,
} lc_auto_augment_policy;

typedef struct lc_transform_policy_args {
    size_t size;
    lc_auto_augment_policy policy; /* of AutoAugment */
    int num_ops, magnitude;        /* of RandAugment */
    int num_magnitude_bins;        /* of RandAugment and TrivialAugmentWide */
    lc_resample interpolation;     /* nearest or bilinear */
    double fill;                   /* LC_NOT_GIVEN: black, and edges of bilinear are blended as if there were none */
    lc_color fill_color;           /* in place of `fill` */
} lc_transform_policy_args;
LC_DEFAULTS(lc_transform_policy, lc_transform_policy_args, .num_ops = 2, .magnitude = 9, .num_magnitude_bins = 31,
            .fill = LC_NOT_GIVEN)
/* A random one of 25 pairs of operations, which were learned for a data set. */
#define lc_transform_auto_augment(...) LC_CALL_NEW_(lc_transform_auto_augment, lc_transform_policy, (), __VA_ARGS__, )
LC_API lc_status lc_transform_auto_augment_with(lc_transform *out, const lc_transform_policy_args *args) LC_MUST_USE;
/* num_ops random operations of one magnitude. */
#define lc_transform_rand_augment(...) LC_CALL_NEW_(lc_transform_rand_augment, lc_transform_policy, (), __VA_ARGS__, )
LC_API lc_status lc_transform_rand_augment_with(lc_transform *out, const lc_transform_policy_args *args) LC_MUST_USE;
/* One random operation of a random magnitude. */
#define lc_transform_trivial_augment_wide(...)                                                                         \
    LC_CALL_NEW_(lc_transform_trivial_augment_wide, lc_transform_policy, (), __VA_ARGS__, )
LC_API lc_status lc_transform_trivial_augment_wide_with(lc_transform *out,
                                                        const lc_transform_policy_args *args) LC_MUST_USE;

/* ============================================== on the device ================================================= */

/* These are operators of a step: call them in on_after_batch_transfer or training_step. `keys` [B] is the field that
 * lc_dataset_keys adds, on which the random numbers depend: they are the same for any number of workers and ranks, and
 * after a resume. */

/* Each sample of x [B,...] transformed; with the same key, apply of the loader gives the same result. `t` is not needed
 * afterwards. Gradients stop here. Not all can be recorded: lc_transform_ops.self_size. */
LC_API lc_tensor *lc_transform_batch_at(const lc_transform *t, lc_tensor *x, lc_tensor *keys, lc_site site);
#define lc_transform_batch(t, x, keys) lc_transform_batch_at((t), (x), (keys), LC_HERE)
/* As lc_dataloader_args.mix: replaces *x, f32 [B,...], and *y, f32 [B,classes] of probabilities. One proportion is
 * drawn for the batch, and each sample is mixed with the one before it. With several ranks that is the rank's share of
 * a batch, where the loader mixes the whole. Call it in on_after_batch_transfer: with `deterministic` or several
 * devices training_step has a piece of the batch, and the only sample of a piece would be mixed with itself. */
LC_API void lc_mix_batch_at(lc_tensor **x, lc_tensor **y, lc_tensor *keys, lc_mix mix, double alpha, lc_site site);
#define lc_mix_batch(x, y, keys, mix, alpha) lc_mix_batch_at((x), (y), (keys), (mix), (alpha), LC_HERE)

LC_END_DECLS

#endif

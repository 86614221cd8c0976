/* SPDX-License-Identifier: Apache-2.0 */
/* A small folder for trying the program without LFW: drawn faces, as PNG files. */
#include "lfw_dataset.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { SIDE = 100, EACH = 12 };
static const char *const people[] = {"Ada_Brown", "Ben_Green", "Cleo_Gray", "Dan_White"};

static bool within(double x, double y, double cx, double cy, double rx, double ry)
{
    return (x - cx) * (x - cx) / (rx * rx) + (y - cy) * (y - cy) / (ry * ry) <= 1;
}

/* Which person it is decides the colors, the picture where the face is and how wide its mouth. */
static void draw(int person, int picture, float *pixels) /* [3,SIDE,SIDE], 0 to 1 */
{
    static const float skin[][3] = {{.9f, .7f, .6f}, {.6f, .4f, .3f}, {.8f, .6f, .5f}, {.5f, .35f, .25f}};
    static const float back[][3] = {{.2f, .3f, .6f}, {.7f, .7f, .4f}, {.3f, .5f, .3f}, {.5f, .3f, .5f}};
    double cx = 50 + 10 * lc_random_normal(7, (uint64_t)(picture * 4 + person)), cy = 50 + picture % 3 * 4;
    for (int i = 0; i < SIDE * SIDE; i++) {
        double x = i % SIDE, y = i / SIDE;
        bool face = within(x, y, cx, cy, 28, 36);
        bool dark = within(x, y, cx - 11, cy - 8, 4, 3) || within(x, y, cx + 11, cy - 8, 4, 3) ||
                    within(x, y, cx, cy + 17, 6 + picture % 5 * 2, 3) || (face && y < cy - 24);
        for (int k = 0; k < 3; k++)
            pixels[k * SIDE * SIDE + i] = dark ? 0.15f : face ? skin[person][k] : back[person][k];
    }
}

/* As a grid of one picture, which has a white margin. */
static lc_status write_face(const char *file, const float *pixels)
{
    lc_tensor *t;
    lc_plot *plot = NULL;
    LC_TRY(lc_tensor_new(LC_F32, 3, (const int64_t[]){3, SIDE, SIDE}, &t));
    lc_status s = lc_tensor_write(t, pixels, sizeof(float) * 3 * SIDE * SIDE);
    if (s >= 0) s = lc_plot_pictures(t, &plot);
    if (s >= 0) s = lc_plot_save(plot, file);
    lc_plot_free(plot);
    lc_tensor_unref(t);
    return s;
}

static lc_status make_folder(const char *path)
{
    if (mkdir(path, 0777) == 0 || errno == EEXIST) return LC_OK;
    return lc_fail(LC_ERR_IO, "the folder %s cannot be made: %s", path, strerror(errno));
}

lc_status make_faces(const char *path)
{
    static float pixels[3 * SIDE * SIDE];
    char name[4096];
    LC_TRY(make_folder(path));
    for (int person = 0; person < 4; person++) {
        snprintf(name, sizeof name, "%s/%s", path, people[person]);
        LC_TRY(make_folder(name));
        for (int picture = 0; picture < EACH; picture++) {
            draw(person, picture, pixels);
            snprintf(name, sizeof name, "%s/%s/%s_%04d.png", path, people[person], people[person], picture + 1);
            LC_TRY(write_face(name, pixels));
        }
    }
    return LC_OK;
}

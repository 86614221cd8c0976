/* SPDX-License-Identifier: Apache-2.0 */
/* Modules in shared objects: a class (hyperparameters.h) that `lightc run`, or any program, opens at run time.
 *
 *     static const lc_module_class spiral_class = {LC_MODULE_CLASS_INIT("spiral"), ...};
 *     LC_PLUGIN(spiral_class)                                  once in the shared object
 *
 *     cc -shared -fPIC spiral.c -o spiral.so $(pkg-config --cflags --libs lightc)
 *     lightc run spiral.so --max_epochs 5 --width 64
 *
 * The exported structure says what the shared object was built with; an incompatible one is refused with a message. */
#ifndef LIGHTC_PLUGIN_H
#define LIGHTC_PLUGIN_H

#include <lightc/hyperparameters.h>

#define LC_PLUGIN_MAGIC  UINT32_C(0x6c632e70) /* "lc.p" */
#define LC_PLUGIN_SYMBOL "lc_plugin_entry"
/* Until 1.0 a minor version may change the interface. */
#define LC_PLUGIN_ABI (UINT32_C(1000) * LC_VERSION_MAJOR + LC_VERSION_MINOR)

/* The first three members never change, so that every version can read them. */
typedef struct lc_plugin_info {
    uint32_t magic, abi;
    const char *version; /* LC_VERSION_STRING of the headers */
    size_t module_size;  /* sizeof(lc_module): modules embed it */
    size_t batch_size;   /* sizeof(lc_batch) */
    size_t ops_size;     /* sizeof(lc_module_ops): may be smaller than the library's */
    const lc_module_class *module;
} lc_plugin_info;

#define LC_PLUGIN(class_)                                                                                              \
    LC_BEGIN_DECLS                                                                                                     \
    LC_API extern const lc_plugin_info lc_plugin_entry;                                                                \
    LC_END_DECLS                                                                                                       \
    const lc_plugin_info lc_plugin_entry = {LC_PLUGIN_MAGIC,   LC_PLUGIN_ABI,    LC_VERSION_STRING,                    \
                                            sizeof(lc_module), sizeof(lc_batch), sizeof(lc_module_ops),                \
                                            &(class_)};

typedef struct lc_plugin lc_plugin;

LC_BEGIN_DECLS
/* Opens a shared object and checks that it is compatible. A path without a slash is searched for as dlopen does.
 * lc_plugin_close closes *out. */
LC_API lc_status lc_plugin_open(const char *path, lc_plugin **out) LC_MUST_USE;
/* Borrowed from the plugin. */
LC_API const lc_module_class *lc_plugin_class(const lc_plugin *p);
/* Call it after all modules of its class have been freed. NULL is fine. */
LC_API void lc_plugin_close(lc_plugin *p);
LC_END_DECLS
#endif

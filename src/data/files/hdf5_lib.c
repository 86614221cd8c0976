/* SPDX-License-Identifier: Apache-2.0 */
/* HDF5, through libhdf5, which is opened when the first such file is: programs without one do not load it. Every
 * dataset of numbers is an array, whose name is its path without the first slash. One that is in the file as it would
 * be in memory is mapped; samples of others are read as hyperslabs. The library keeps chunks that it has decompressed
 * in a cache for each dataset. Most builds of the library are not safe for threads, and all have one state: one lock is
 * around every call. */
#include "data/files/hdf5.h"
#include "base/clock.h"
#include "data/files/lzf.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

/* The headers turn names such as H5T_NATIVE_INT into variables of the library, after opening it; these are looked up.
 */
#include <hdf5.h>

#define READ_ONLY   0 /* H5F_ACC_RDONLY would call the library */
#define CACHE_BYTES ((size_t)64 << 20)
#define USUAL_BYTES ((size_t)1 << 20) /* the library's cache by default, */
#define USUAL_SLOTS 521               /* and its slots */
#define MOST_ARRAYS 100000

/* H5Ovisit has had three interfaces. */
#if H5_VERSION_GE(1, 12, 0)
#define VISIT H5Ovisit3
typedef H5O_info2_t object_info;
#else
#define VISIT H5Ovisit2
typedef H5O_info_t object_info;
#endif

#define FUNCTIONS(X)                                                                                                   \
    X(H5open)                                                                                                          \
    X(H5get_libversion)                                                                                                \
    X(H5Eget_auto2)                                                                                                    \
    X(H5Eset_auto2)                                                                                                    \
    X(H5Fopen)                                                                                                         \
    X(H5Fclose)                                                                                                        \
    X(VISIT)                                                                                                           \
    X(H5Dopen2)                                                                                                        \
    X(H5Dclose)                                                                                                        \
    X(H5Dget_space)                                                                                                    \
    X(H5Dget_type)                                                                                                     \
    X(H5Dget_create_plist)                                                                                             \
    X(H5Dget_offset)                                                                                                   \
    X(H5Dget_storage_size)                                                                                             \
    X(H5Dread)                                                                                                         \
    X(H5Sclose)                                                                                                        \
    X(H5Screate_simple)                                                                                                \
    X(H5Sget_simple_extent_type)                                                                                       \
    X(H5Sget_simple_extent_ndims)                                                                                      \
    X(H5Sget_simple_extent_dims)                                                                                       \
    X(H5Sselect_hyperslab)                                                                                             \
    X(H5Tclose)                                                                                                        \
    X(H5Tequal)                                                                                                        \
    X(H5Tget_class)                                                                                                    \
    X(H5Tget_size)                                                                                                     \
    X(H5Tget_sign)                                                                                                     \
    X(H5Tget_native_type)                                                                                              \
    X(H5Tget_nmembers)                                                                                                 \
    X(H5Tget_member_value)                                                                                             \
    X(H5Pcreate)                                                                                                       \
    X(H5Pclose)                                                                                                        \
    X(H5Pget_external_count)                                                                                           \
    X(H5Pget_layout)                                                                                                   \
    X(H5Pget_chunk)                                                                                                    \
    X(H5Pset_chunk_cache)                                                                                              \
    X(H5Pget_nfilters)                                                                                                 \
    X(H5Pget_filter2)                                                                                                  \
    X(H5Zfilter_avail)                                                                                                 \
    X(H5Zregister)                                                                                                     \
    X(H5allocate_memory)                                                                                               \
    X(H5free_memory)

typedef struct library {
#define MEMBER(name) __typeof__(&name) name;
    FUNCTIONS(MEMBER)
#undef MEMBER
    hid_t dataset_access; /* the class H5P_DATASET_ACCESS */
} library;

/* One state for the process: so is the library's. */
static struct {
    pthread_mutex_t lock;
    bool loaded;
    library h;
} hdf5 = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The numbers in lc__file_array.place. */
enum { DATASET, MEMORY_TYPE };

static lc_status load_library(const lc_array_file *f)
{
    if (hdf5.loaded) return LC_OK;
    void *lib = dlopen(LIGHTC_HDF5_LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!lib)
        return lc__file_fail(f, LC_ERR_UNSUPPORTED, NULL,
                             "is an HDF5 file, which needs %s, which is not installed (Debian and Ubuntu: apt install "
                             "libhdf5-dev)",
                             LIGHTC_HDF5_LIBRARY);
    bool whole = true;
#define LOAD(name)         LOAD_(name, hdf5.h.name)
#define LOAD_(name, place) whole = whole && (*(void **)&place = dlsym(lib, #name)) != NULL;
    FUNCTIONS(LOAD)
#undef LOAD
#undef LOAD_
    const hid_t *access = dlsym(lib, "H5P_CLS_DATASET_ACCESS_ID_g");
    unsigned major = 0, minor = 0, patch = 0;
    if (!whole || !access || hdf5.h.H5open() < 0 || hdf5.h.H5get_libversion(&major, &minor, &patch) < 0 ||
        major != H5_VERS_MAJOR || minor != H5_VERS_MINOR)
        return lc__file_fail(f, LC_ERR_UNSUPPORTED, NULL,
                             "is an HDF5 file, and %s (version %u.%u) cannot be used: lightc was built for %d.%d",
                             LIGHTC_HDF5_LIBRARY, major, minor, H5_VERS_MAJOR, H5_VERS_MINOR);
    hdf5.h.dataset_access = *access;
    hdf5.loaded = true;
    return LC_OK;
}

/* The library is used between these. It would print its errors, as a program that uses it too may want. */
typedef struct errors {
    H5E_auto2_t print;
    void *data;
} errors;

static void begin_calls(errors *e)
{
    (void)hdf5.h.H5Eget_auto2(H5E_DEFAULT, &e->print, &e->data);
    (void)hdf5.h.H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
}

static void end_calls(const errors *e)
{
    (void)hdf5.h.H5Eset_auto2(H5E_DEFAULT, e->print, e->data);
}

/* ---- h5py's filter ---- */

/* As H5Z_func_t: 0 is an error. *data, which the library frees, becomes what it decompresses to. */
static size_t lzf_filter(unsigned flags, size_t n_values, const unsigned values[], size_t n, size_t *room, void **data)
{
    (void)n_values, (void)values;
    const size_t size = flags & H5Z_FLAG_REVERSE ? lc__lzf_decode(*data, n, NULL, SIZE_MAX) : 0;
    void *to = size ? hdf5.h.H5allocate_memory(size, false) : NULL;
    if (!to) return 0;
    (void)lc__lzf_decode(*data, n, to, size);
    (void)hdf5.h.H5free_memory(*data);
    *data = to;
    *room = size;
    return size;
}

/* Unless the program has one that also compresses. */
static void add_lzf(void)
{
    static const H5Z_class2_t lzf = {
        .version = H5Z_CLASS_T_VERS, .id = 32000, .decoder_present = 1, .name = "lzf", .filter = lzf_filter};
    if (hdf5.h.H5Zfilter_avail(lzf.id) <= 0) (void)hdf5.h.H5Zregister(&lzf);
}

/* ---- the arrays of a file ---- */

/* h5py's bool is an enum of FALSE and TRUE, which are 0 and 1. */
static bool is_bool(hid_t type)
{
    uint8_t a, b;
    return hdf5.h.H5Tget_size(type) == 1 && hdf5.h.H5Tget_nmembers(type) == 2 &&
           hdf5.h.H5Tget_member_value(type, 0, &a) >= 0 && hdf5.h.H5Tget_member_value(type, 1, &b) >= 0 && a <= 1 &&
           b == 1 - a;
}

static lc__number number_of(hid_t type)
{
    size_t size = hdf5.h.H5Tget_size(type);
    H5T_class_t class = hdf5.h.H5Tget_class(type);
    bool is_signed = class == H5T_INTEGER && hdf5.h.H5Tget_sign(type) == H5T_SGN_2;
    if (class == H5T_FLOAT) return size == 2 ? LC__F16 : size == 4 ? LC__F32 : size == 8 ? LC__F64 : LC__NO_NUMBER;
    if (class == H5T_ENUM) return is_bool(type) ? LC__BOOL : LC__NO_NUMBER;
    if (class != H5T_INTEGER) return LC__NO_NUMBER;
    return size == 1   ? is_signed ? LC__I8 : LC__U8
           : size == 2 ? is_signed ? LC__I16 : LC__U16
           : size == 4 ? is_signed ? LC__I32 : LC__U32
           : size == 8 ? is_signed ? LC__I64 : LC__U64
                       : LC__NO_NUMBER;
}

/* Elements in another file, whose name is the file's choice, are not read. */
static bool is_outside(hid_t dataset)
{
    hid_t made = hdf5.h.H5Dget_create_plist(dataset);
    bool outside = made < 0 || hdf5.h.H5Pget_layout(made) == H5D_VIRTUAL || hdf5.h.H5Pget_external_count(made) != 0;
    if (made >= 0) hdf5.h.H5Pclose(made);
    return outside;
}

/* Refuses an array whose chunks went through a filter that the library does not have, such as zstd. */
static lc_status check_filters(lc__file_array *a, hid_t dataset)
{
    const library *h = &hdf5.h;
    char name[64] = "";
    H5Z_filter_t missing = 0;
    hid_t made = h->H5Dget_create_plist(dataset);
    const int n = made < 0 ? 0 : h->H5Pget_nfilters(made);
    for (int i = 0; i < n && !missing; i++) {
        unsigned flags, config;
        size_t values = 0;
        const H5Z_filter_t id = h->H5Pget_filter2(made, (unsigned)i, &flags, &values, NULL, sizeof name, name, &config);
        if (id > 0 && h->H5Zfilter_avail(id) <= 0) missing = id;
    }
    if (made >= 0) h->H5Pclose(made);
    name[sizeof name - 1] = 0;
    if (!missing) return LC_OK;
    return lc__file_refuse(a,
                           "is compressed by '%s' (filter %d), which the installed library lacks; write it with gzip, "
                           "or name the folder of the filter's plugin in HDF5_PLUGIN_PATH",
                           name, (int)missing);
}

/* Room for the chunks of the dataset, or for as many as fit, so that each is decompressed once for many samples. A
 * chunk loses its place to another one of the same slot, so there are more slots than chunks. */
static hid_t access_for(hid_t dataset, const lc__file_array *a)
{
    const library *h = &hdf5.h;
    hsize_t chunk[LC_MAX_DIMS];
    size_t bytes = lc__number_size(a->number), chunks = 1;
    hid_t made = h->H5Dget_create_plist(dataset), access = -1;
    if (made < 0) return -1;
    if (h->H5Pget_layout(made) == H5D_CHUNKED && h->H5Pget_chunk(made, LC_MAX_DIMS, chunk) == a->info.ndim) {
        for (int d = 0; d < a->info.ndim; d++) {
            const size_t n = ((size_t)a->info.shape[d] + (size_t)chunk[d] - 1) / (size_t)chunk[d];
            if (__builtin_mul_overflow(bytes, (size_t)chunk[d], &bytes)) bytes = CACHE_BYTES + 1;
            if (__builtin_mul_overflow(chunks, n, &chunks)) chunks = CACHE_BYTES;
        }
        const size_t room = CACHE_BYTES / bytes, kept = chunks < room ? chunks : room;
        if (kept && bytes * kept > USUAL_BYTES && (access = h->H5Pcreate(h->dataset_access)) >= 0)
            (void)h->H5Pset_chunk_cache(access, 2 * kept + USUAL_SLOTS, CACHE_BYTES, 0.75);
    }
    h->H5Pclose(made);
    return access;
}

static lc_status set_shape(lc__file_array *a, hid_t dataset)
{
    const library *h = &hdf5.h;
    hid_t space = h->H5Dget_space(dataset);
    hsize_t dims[LC_MAX_DIMS];
    uint64_t bytes;
    lc_status status = LC_OK;
    int ndim = space < 0 ? -1 : h->H5Sget_simple_extent_ndims(space);
    if (ndim > LC_MAX_DIMS)
        status = lc__file_refuse(a, "has %d dimensions, and lightc's have at most %d", ndim, LC_MAX_DIMS);
    else if (ndim < 0 || h->H5Sget_simple_extent_type(space) == H5S_NULL)
        status = lc__file_refuse(a, "has no elements");
    else if (ndim > 0 && h->H5Sget_simple_extent_dims(space, dims, NULL) < 0)
        status = lc__file_refuse(a, "has no valid shape");
    if (space >= 0) h->H5Sclose(space);
    if (status < 0 || a->refused) return status;
    a->info.ndim = ndim;
    for (int d = 0; d < ndim; d++) {
        if (dims[d] > INT64_MAX) return lc__file_refuse(a, "is larger than any memory");
        a->info.shape[d] = (int64_t)dims[d];
    }
    return lc__file_strides(a, false, &bytes) ? LC_OK : lc__file_refuse(a, "is larger than any memory");
}

/* Elements that are side by side in the file, as they are in memory, need no library. Those that were never written
 * have no place, though after a block of the user's H5Dget_offset gives them one. */
static void map_dataset(const lc_array_file *f, lc__file_array *a, hid_t dataset)
{
    const library *h = &hdf5.h;
    const haddr_t at = h->H5Dget_offset(dataset);
    hid_t type = at == HADDR_UNDEF ? -1 : h->H5Dget_type(dataset);
    uint64_t bytes;
    if (type >= 0 && h->H5Tequal(type, (hid_t)a->place[MEMORY_TYPE]) > 0 && lc__file_strides(a, false, &bytes) &&
        h->H5Dget_storage_size(dataset) == bytes && at <= f->size && bytes <= f->size - at)
        a->data = (const char *)f->bytes + at;
    if (type >= 0) h->H5Tclose(type);
}

static lc_status open_dataset(lc_array_file *f, hid_t file, const char *path)
{
    const library *h = &hdf5.h;
    lc__file_array *a;
    LC_TRY(lc__file_add(f, path, strlen(path), &a));
    hid_t dataset = h->H5Dopen2(file, path, H5P_DEFAULT);
    if (dataset < 0)
        return lc__file_refuse(a, "cannot be opened: it is damaged, or of a later version of the format than the "
                                  "installed library's");
    a->place[DATASET] = (uint64_t)dataset;
    hid_t type = h->H5Dget_type(dataset), native = type < 0 ? -1 : h->H5Tget_native_type(type, H5T_DIR_ASCEND);
    lc_status status = LC_OK;
    if (native >= 0) a->place[MEMORY_TYPE] = (uint64_t)native, a->number = number_of(native);
    if (type >= 0) h->H5Tclose(type);
    if (is_outside(dataset))
        status =
            lc__file_refuse(a, "has its elements in other files, which lightc does not open; copy them into this one");
    else if (!a->number)
        status = lc__file_refuse(a, "has elements that are not numbers lightc has (texts, structures, enumerations, "
                                    "references); "
                                    "convert them");
    else if ((status = check_filters(a, dataset)) == LC_OK && !a->refused)
        status = set_shape(a, dataset);
    if (status < 0 || a->refused || !a->info.ndim) return status;
    map_dataset(f, a, dataset);
    hid_t access = access_for(dataset, a);
    if (access < 0) return LC_OK;
    h->H5Dclose(dataset); /* an open dataset keeps the cache that it has */
    dataset = h->H5Dopen2(file, path, access);
    h->H5Pclose(access);
    a->place[DATASET] = dataset < 0 ? 0 : (uint64_t)dataset;
    return dataset < 0 ? lc__file_refuse(a, "cannot be opened again") : LC_OK;
}

typedef struct visit {
    lc_array_file *f;
    hid_t file;
    lc_status status;
} visit;

static herr_t visit_object(hid_t file, const char *name, const object_info *info, void *ctx)
{
    visit *v = ctx;
    (void)file;
    if (info->type != H5O_TYPE_DATASET) return 0;
    v->status = v->f->n == MOST_ARRAYS
                    ? lc__file_fail(v->f, LC_ERR_UNSUPPORTED, NULL, "has more than %d arrays", MOST_ARRAYS)
                    : open_dataset(v->f, v->file, name);
    return v->status < 0 ? -1 : 0;
}

static lc_status read_locked(lc_array_file *f)
{
    hid_t file = hdf5.h.H5Fopen(f->path, READ_ONLY, H5P_DEFAULT);
    if (file < 0)
        return lc__file_fail(f, LC_ERR_FORMAT, NULL, "is not a whole HDF5 file, or is open elsewhere for writing");
    visit v = {.f = f, .file = file};
    herr_t rc = hdf5.h.VISIT(file, H5_INDEX_NAME, H5_ITER_NATIVE, visit_object, &v, H5O_INFO_BASIC);
    hdf5.h.H5Fclose(file); /* what is open in it keeps it open */
    if (rc < 0 && v.status == LC_OK) return lc__file_fail(f, LC_ERR_FORMAT, NULL, "is not a valid HDF5 file");
    return v.status;
}

static lc_status read_header(lc_array_file *f)
{
    if (!f->mapped) return lc__file_fail(f, LC_ERR_UNSUPPORTED, NULL, "is an HDF5 file, which is not read from memory");
    pthread_mutex_lock(&hdf5.lock);
    errors e;
    lc_status status = load_library(f);
    if (status == LC_OK) {
        begin_calls(&e);
        add_lzf();
        status = read_locked(f);
        end_calls(&e);
    }
    pthread_mutex_unlock(&hdf5.lock);
    return status;
}

static bool read_slab(const lc__file_array *a, int64_t first, int64_t n, void *to)
{
    const library *h = &hdf5.h;
    hid_t dataset = (hid_t)a->place[DATASET], type = (hid_t)a->place[MEMORY_TYPE];
    hsize_t start[LC_MAX_DIMS] = {(hsize_t)first}, count[LC_MAX_DIMS] = {(hsize_t)n};
    if (!a->info.ndim) return h->H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, to) >= 0;
    for (int d = 1; d < a->info.ndim; d++) count[d] = (hsize_t)a->info.shape[d];
    hid_t space = h->H5Dget_space(dataset), memory = h->H5Screate_simple(a->info.ndim, count, NULL);
    bool fine = space >= 0 && memory >= 0 &&
                h->H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL) >= 0 &&
                h->H5Dread(dataset, type, memory, space, H5P_DEFAULT, to) >= 0;
    if (memory >= 0) h->H5Sclose(memory);
    if (space >= 0) h->H5Sclose(space);
    return fine;
}

static lc_status read_samples(const lc_array_file *f, const lc__file_array *a, int64_t first, int64_t n, void *to)
{
    const int64_t start = lc__now_ns();
    pthread_mutex_lock(&hdf5.lock);
    errors e;
    begin_calls(&e);
    bool fine = read_slab(a, first, n, to);
    end_calls(&e);
    pthread_mutex_unlock(&hdf5.lock);
    lc__spent.read_ns += lc__now_ns() - start;
    if (fine) return LC_OK;
    return lc__file_fail(f, LC_ERR_IO, a->info.name, "cannot be read from sample %lld on: the file is damaged",
                         (long long)first);
}

static void hdf5_free(lc_array_file *f)
{
    pthread_mutex_lock(&hdf5.lock);
    for (int64_t i = 0; i < f->n; i++) {
        if (f->arrays[i].place[DATASET]) hdf5.h.H5Dclose((hid_t)f->arrays[i].place[DATASET]);
        if (f->arrays[i].place[MEMORY_TYPE]) hdf5.h.H5Tclose((hid_t)f->arrays[i].place[MEMORY_TYPE]);
    }
    pthread_mutex_unlock(&hdf5.lock);
}

const lc__file_kind lc__hdf5_kind = {
    .matches = lc__is_hdf5,
    .read_header = read_header,
    .read = read_samples,
    .free = hdf5_free,
};

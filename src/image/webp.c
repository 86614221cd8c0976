/* SPDX-License-Identifier: Apache-2.0 */
/* WebP by libwebp; of an animation the first picture, by libwebpdemux. Transparency is ignored. */
#include "image/image.h"

#include <webp/decode.h>
#include <webp/demux.h>

static lc_status report(const lc__image_file *file, VP8StatusCode code)
{
    switch (code) {
    case VP8_STATUS_OUT_OF_MEMORY:
        return lc_fail(LC_ERR_MEMORY, "out of memory: %s is decoded", file->name);
    case VP8_STATUS_NOT_ENOUGH_DATA:
        return lc_fail(LC_ERR_FORMAT, "%s ends early: the WebP file is truncated", file->name);
    case VP8_STATUS_UNSUPPORTED_FEATURE:
        return lc_fail(LC_ERR_FORMAT, "%s: libwebp does not know a feature of this WebP file", file->name);
    default:
        return lc_fail(LC_ERR_FORMAT, "%s: the WebP data are corrupt", file->name);
    }
}

static lc_status read_still(const lc__image_file *file, lc__image *image)
{
    WebPDecoderConfig config;
    if (!WebPInitDecoderConfig(&config)) return lc_fail(LC_ERR_UNSUPPORTED, "this libwebp is not the one of the build");
    config.output.colorspace = MODE_RGB;
    config.output.is_external_memory = 1;
    config.output.u.RGBA.rgba = image->pixels;
    config.output.u.RGBA.stride = (int)(3 * image->width);
    config.output.u.RGBA.size = 3 * (size_t)image->width * (size_t)image->height;
    VP8StatusCode code = WebPDecode(file->bytes, file->n, &config);
    WebPFreeDecBuffer(&config.output);
    return code == VP8_STATUS_OK ? LC_OK : report(file, code);
}

static bool can_be_taken_apart(const lc__image_file *file)
{
    const WebPData data = {file->bytes, file->n};
    WebPDemuxer *demuxer = WebPDemux(&data);
    WebPDemuxDelete(demuxer);
    return demuxer != NULL;
}

static lc_status read_first(const lc__image_file *file, lc__image *image)
{
    WebPAnimDecoderOptions options;
    const WebPData data = {file->bytes, file->n};
    uint8_t *canvas; /* the decoder's: [height,width,4] */
    int time;
    if (!WebPAnimDecoderOptionsInit(&options))
        return lc_fail(LC_ERR_UNSUPPORTED, "this libwebpdemux is not the one of the build");
    options.color_mode = MODE_RGBA;
    WebPAnimDecoder *decoder = WebPAnimDecoderNew(&data, &options);
    lc_status status = LC_OK;
    /* NULL can also mean a lack of memory, which libwebp does not tell apart: a file that can be taken apart is
     * not broken. */
    if (!decoder)
        status = report(file, can_be_taken_apart(file) ? VP8_STATUS_OUT_OF_MEMORY : VP8_STATUS_BITSTREAM_ERROR);
    else if (!WebPAnimDecoderGetNext(decoder, &canvas, &time))
        status = report(file, VP8_STATUS_BITSTREAM_ERROR);
    else
        for (int64_t i = 0; i < image->height * image->width; i++)
            for (int c = 0; c < 3; c++) image->pixels[3 * i + c] = canvas[4 * i + c];
    WebPAnimDecoderDelete(decoder);
    return status;
}

static int orientation_of(const lc__image_file *file)
{
    const WebPData data = {file->bytes, file->n};
    WebPChunkIterator chunk;
    int orientation = 1;
    WebPDemuxer *demuxer = WebPDemux(&data);
    if (!demuxer) return 1;
    if (WebPDemuxGetChunk(demuxer, "EXIF", 1, &chunk)) {
        orientation = lc__exif_orientation(chunk.chunk.bytes, chunk.chunk.size);
        WebPDemuxReleaseChunkIterator(&chunk);
    }
    WebPDemuxDelete(demuxer);
    return orientation;
}

lc_status lc__webp_decode(const lc__image_file *file, lc__image *image)
{
    WebPBitstreamFeatures features;
    VP8StatusCode code = WebPGetFeatures(file->bytes, file->n, &features);
    if (code != VP8_STATUS_OK) return report(file, code);
    LC_TRY(lc__image_room(file, features.height, features.width, image));
    if (file->exif_transpose) image->orientation = orientation_of(file);
    return features.has_animation ? read_first(file, image) : read_still(file, image);
}

# SPDX-License-Identifier: Apache-2.0
"""Writes tests/data/shards/fixtures: tar files of the formats that there are, with the same four samples.

    pip install webdataset
    python tests/peers/record_shards.py tests/data/shards/fixtures tests/image/pictures/grey2.png

webdataset.tar is what webdataset's TarWriter makes; ustar.tar, gnu.tar and pax.tar come from Python's tarfile, the last
two with names that need headers of their own; torn.tar is cut off within a member.
"""
import io
import sys
import tarfile

import webdataset

FOLDER, PICTURE = sys.argv[1], open(sys.argv[2], "rb").read()


def members(long):
    """Two samples in a folder, one with a text as its third member, and one with a long name."""
    for i in range(4):
        key = f"part/{i:04d}" if i < 3 or not long else "d" * 150 + "/" + "k" * 130
        yield key + ".PNG" if i == 1 else key + ".png", PICTURE
        yield key + ".cls", f"{7 - i}\n".encode()
        if i == 2:
            yield key + ".json", b"{}"


def write(name, kind, long):
    with tarfile.open(f"{FOLDER}/{name}.tar", "w", format=kind) as tar:
        folder = tarfile.TarInfo("part")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        for member, data in members(long):
            info = tarfile.TarInfo(member)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        tar.addfile(tarfile.TarInfo("__notes__"))


write("ustar", tarfile.USTAR_FORMAT, False)
write("gnu", tarfile.GNU_FORMAT, True)
write("pax", tarfile.PAX_FORMAT, True)
with webdataset.TarWriter(f"{FOLDER}/webdataset.tar", mtime=0) as writer:
    for i in range(4):
        writer.write({"__key__": f"part/{i:04d}", "png": PICTURE, "cls": 7 - i})
with open(f"{FOLDER}/ustar.tar", "rb") as f, open(f"{FOLDER}/torn.tar", "wb") as g:
    g.write(f.read()[:1600])

#!/usr/bin/env python3
"""Packs files so that the same input gives the same bytes: fixed order, owner and time.

    pack.py archive OUT.tar.gz|OUT.zip FILE...         files side by side; programs stay executable
    pack.py repack FILE.tgz                            the same tar again, without the times of its making
    pack.py oci OUT.tar NAME:TAG CA-BUNDLE ARCH=DIR... an image index of two static programs for each architecture
    pack.py changes < NOTES                            the changes for Artifact Hub: the first sentence of each point

The time is that of SOURCE_DATE_EPOCH. `oci` prints the digest of the index. It takes labels and user from the Dockerfile.
"""

import datetime
import gzip
import hashlib
import io
import json
import os
import pathlib
import re
import sys
import tarfile
import zipfile

EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
MEDIA_TYPE = "application/vnd.oci.image."


def member(name, mode, kind=tarfile.REGTYPE):
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.mtime = kind, mode, EPOCH
    return info


def tar(members):
    """The bytes of a tar of (TarInfo, content) in this order."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as out:
        for info, content in members:
            info.size = len(content)
            out.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def gzipped(content):
    return gzip.compress(content, compresslevel=9, mtime=0)


def archive(out, *files):
    inputs = sorted((path.name, path.read_bytes(), 0o755 if os.access(path, os.X_OK) else 0o644) for path in map(pathlib.Path, files))
    if out.endswith(".zip"):
        # The format knows no time before 1980, and counts in two seconds.
        moment = datetime.datetime.fromtimestamp(max(EPOCH, 315532800) // 2 * 2, datetime.timezone.utc)
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
            for name, content, mode in inputs:
                info = zipfile.ZipInfo(name, moment.timetuple()[:6])
                info.compress_type, info.create_system, info.external_attr = zipfile.ZIP_DEFLATED, 3, (0o100000 | mode) << 16
                file.writestr(info, content)
    elif out.endswith(".tar.gz"):
        pathlib.Path(out).write_bytes(gzipped(tar((member(name, mode), content) for name, content, mode in inputs)))
    else:
        sys.exit(f"error: {out}: .tar.gz or .zip")


def repack(path):
    with tarfile.open(path) as file:
        inputs = sorted((info.name, file.extractfile(info).read()) for info in file if info.isfile())
    # Helm wants Chart.yaml first.
    inputs.sort(key=lambda entry: not entry[0].endswith("/Chart.yaml"))
    pathlib.Path(path).write_bytes(gzipped(tar((member(name, 0o644), content) for name, content in inputs)))


def oci(out, name, bundle, *programs):
    dockerfile = (pathlib.Path(__file__).parent.parent / "Dockerfile").read_text()
    labels = dict(re.findall(r'(org\.opencontainers\.image\.\w+)="([^"]*)"', dockerfile))
    user = re.search(r"^USER (\S+)$", dockerfile, re.MULTILINE).group(1)
    moment = datetime.datetime.fromtimestamp(EPOCH, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    blobs = {}

    def blob(kind, content, **more):
        digest = hashlib.sha256(content).hexdigest()
        blobs[digest] = content
        return {"mediaType": MEDIA_TYPE + kind, "digest": f"sha256:{digest}", "size": len(content), **more}

    def document(kind, content, **more):
        return blob(kind, json.dumps(content, sort_keys=True).encode(), **more)

    manifests = []
    for architecture, folder in sorted(program.split("=", 1) for program in programs):
        layer = [(member(path, 0o755, tarfile.DIRTYPE), b"") for path in ("etc", "etc/ssl", "etc/ssl/certs")]
        layer.append((member("etc/ssl/certs/ca-certificates.crt", 0o644), pathlib.Path(bundle).read_bytes()))
        for program in ("restorer", "storer"):
            layer.append((member(program, 0o755), (pathlib.Path(folder) / program).read_bytes()))
        layer = tar(layer)
        config = {
            "architecture": architecture,
            "os": "linux",
            "created": moment,
            "config": {"User": user, "WorkingDir": "/", "Labels": labels},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
            "history": [{"created": moment, "created_by": "deploy/pack.py"}],
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": MEDIA_TYPE + "manifest.v1+json",
            "config": document("config.v1+json", config),
            "layers": [blob("layer.v1.tar+gzip", gzipped(layer))],
        }
        platform = {"architecture": architecture, "os": "linux"}
        manifests.append(document("manifest.v1+json", manifest, platform=platform))
    index = {"schemaVersion": 2, "mediaType": MEDIA_TYPE + "index.v1+json", "manifests": manifests}
    names = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name.rpartition(":")[2]}
    top = document("index.v1+json", index, annotations=names)
    layout = {"schemaVersion": 2, "mediaType": MEDIA_TYPE + "index.v1+json", "manifests": [top]}
    files = [("oci-layout", b'{"imageLayoutVersion":"1.0.0"}'), ("index.json", json.dumps(layout, sort_keys=True).encode())]
    files += sorted((f"blobs/sha256/{digest}", content) for digest, content in blobs.items())
    pathlib.Path(out).write_bytes(tar((member(path, 0o644), content) for path, content in files))
    print(top["digest"])


def changes():
    for point in re.findall(r"^- (.*(?:\n  (?!- ).*)*)", sys.stdin.read(), re.MULTILINE):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(point.split()))
        text = re.sub(r"`|\*\*", "", re.split(r"(?<=[^.]\.) (?=[A-Z`*])", text)[0])
        print(f"    - {json.dumps(text.rstrip('.:'), ensure_ascii=False)}")


COMMANDS = {"archive": archive, "repack": repack, "oci": oci, "changes": changes}

if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in COMMANDS:
        sys.exit(__doc__)
    COMMANDS[sys.argv[1]](*sys.argv[2:])

#!/bin/bash
# A layer includes its own headers and those of the layers before it in this list, never those after it; bin and tests may
# include all of lib. The rooms of lib/model are in one direction too, and the headers beside them are for later layers. Prints each breach and returns 1. Usage: tests/lint/layers.sh [FOLDER that holds lib/ and bin/]
set -u
cd "${1:-${0%/*}/../..}" || exit 1
rooms='config spec weights forward'
layers='base cpu io dist token tensor model data search infer quant measure train bin'

find lib bin -name '*.[ch]' | LC_ALL=C sort | xargs awk -v layers="$layers" -v rooms="$rooms" '
    BEGIN { n = split(layers, name, " "); for (i = 1; i <= n; i++) rank[name[i]] = i; r = split(rooms, name, " "); for (i = 1; i <= r; i++) room[name[i]] = i }
    # The room that a path within lib/model stands in; after all rooms: what stands in none.
    function room_of(name) { return name in room ? room[name] : r + 1 }
    FNR == 1 {
        split(FILENAME, part, "/")
        own = part[1] == "lib" ? part[2] : part[1]
        if (!(own in rank)) { print FILENAME ": expected a layer of: " layers; bad = 1 }
    }
    /^[[:space:]]*#[[:space:]]*include[[:space:]]*"/ {
        split($0, quoted, "\"")
        split(quoted[2], path, "/")
        if (own == "bin" && !(path[1] in rank)) next # a program and its own folder
        if (split(quoted[2], path, "/") < 2) {
            print FILENAME ":" FNR ": \"" quoted[2] "\": expected a path that begins with a layer (\"base/err.h\")"
            bad = 1
        } else if (own == "model" && path[1] == "model" && room_of(path[2]) > room_of(part[3])) {
            print FILENAME ":" FNR ": model/" part[3] " may not include " quoted[2]
            bad = 1
        } else if (path[1] in rank) {
            if (rank[path[1]] > rank[own]) {
                print FILENAME ":" FNR ": " own " may not include " quoted[2]
                bad = 1
            }
        } else {
            print FILENAME ":" FNR ": \"" quoted[2] "\": no such layer"
            bad = 1
        }
    }
    END { exit bad }' || exit 1

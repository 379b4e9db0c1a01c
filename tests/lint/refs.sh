#!/bin/bash
# References that lead nowhere, in comments of C files and of the Makefile, in Markdown and in manual pages: files, sections of Markdown pages
# ("lib/README.md, Canonical order"), names of C (llm_x, LLM_X), sections and pages that manuals cite, links. Prints each and returns 1.
# What has a placeholder (<name>, *, {a,b}, x.c) is a pattern and not checked. Usage: tests/lint/refs.sh [FOLDER that holds the tree]
set -u
cd "${1:-${0%/*}/../..}" || exit 1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

mapfile -t sources < <(find lib bin tests -name '*.[ch]' 2> /dev/null | LC_ALL=C sort)
mapfile -t pages < <(find . -name '*.md' ! -path './build/*' ! -path './tests/golden/*' 2> /dev/null | sed 's|^\./||' | LC_ALL=C sort)
mapfile -t manuals < <(find man -name '*.[0-9]' 2> /dev/null | LC_ALL=C sort)
find . \( -name .git -o -path ./build \) -prune -o -print | sed 's|^\./||' | LC_ALL=C sort > "$work/files"

# Each comment of a C file as one line: file:line, a tab, its text. The rest of the sources, comments removed, goes to $work/code.
: > "$work/text"
: > "$work/code"
((${#sources[@]} == 0)) || awk -v code="$work/code" '
    FNR == 1 { open = 0 }
    {
        line = $0
        rest = ""
        while (line != "") {
            if (open) {
                end = index(line, "*/")
                part = end ? substr(line, 1, end - 1) : line
                sub(/^ *\* ?/, "", part)
                text = text " " part
                if (!end) break
                line = substr(line, end + 2)
                open = 0
                print start "\t" text
            } else if (match(line, /"([^"\\]|\\.)*"|\/\*|\/\//)) {
                found = substr(line, RSTART, 2)
                if (found == "//") { print FILENAME ":" FNR "\t" substr(line, RSTART + 2); rest = rest substr(line, 1, RSTART - 1); line = "" }
                else if (found == "/*") { rest = rest substr(line, 1, RSTART - 1); line = substr(line, RSTART + 2); open = 1; text = ""; start = FILENAME ":" FNR }
                else { rest = rest substr(line, 1, RSTART + RLENGTH - 1); line = substr(line, RSTART + RLENGTH) }
            } else { rest = rest line; line = "" }
        }
        print rest >> code
    }' "${sources[@]}" > "$work/text"
[[ ! -f Makefile ]] || awk '/^[[:space:]]*#/ { print FILENAME ":" FNR "\t" $0 }' Makefile >> "$work/text"
((${#pages[@]} == 0)) || awk '{ print FILENAME ":" FNR "\t" $0 }' "${pages[@]}" >> "$work/text"
((${#manuals[@]} == 0)) || awk '{ gsub(/\\[-e&]/, "-"); print FILENAME ":" FNR "\t" $0 }' "${manuals[@]}" >> "$work/text"
((${#pages[@]} == 0)) || awk '/^#+ / { title = $0; sub(/^#+ /, "", title); print FILENAME "\t" title }' "${pages[@]}" > "$work/titles"
grep -ohE '\b(llm|LLM)_[A-Za-z0-9_]*' "$work/code" | LC_ALL=C sort -u > "$work/names"

{
    awk -F'\t' -v files="$work/files" -v names="$work/names" -v titles="$work/titles" '
        BEGIN {
            while ((getline path < files) > 0) {
                there[path] = 1
                for (at = path; sub(/^[^\/]*\//, "", at); ) there[at] = 1
            }
            while ((getline line < names) > 0) known[line] = 1
            while ((getline line < titles) > 0) { split(line, part, "\t"); n[part[1]]++; title[part[1], n[part[1]]] = part[2] }
        }
        # Words of a character class, with what stands around them.
        function each(text, expression,    word) {
            count = 0
            while (match(text, expression)) {
                word = substr(text, RSTART, RLENGTH)
                before[++count] = RSTART > 1 ? substr(text, RSTART - 1, 1) : ""
                text = substr(text, RSTART + RLENGTH)
                after[count] = text
                found[count] = word
            }
            return count
        }
        {
            text = substr($0, length($1) + 2)
            where = $1
            own = $1; sub(/:[0-9]+$/, "", own)
            each(text, "[A-Za-z0-9_.<>{},*$~-]*(/[A-Za-z0-9_.<>{},*$-]*)*[A-Za-z0-9_>*}/]")
            for (i = 1; i <= count; i++) {
                word = found[i]
                sub(/\/$/, "", word)
                if (word ~ /[<>{}*$~,]|[\/-]x\.[a-z]+$/ || before[i] ~ /[\/%:\\@]/ || after[i] ~ /^[<*{$]/) continue
                if (word ~ /^(lib|bin|tests|formats|man)\// || (own !~ /^man/ && word ~ /[a-z0-9_]\.(c|h|bats)$/ && word !~ /^\./)) {
                    if (!(word in there)) print where ": no such file: " word
                }
                if (word ~ /\.md$/ && word !~ /[A-Z]/ && !(word in there)) print where ": no such file: " word
                if (word ~ /\.md$/ && word in n && after[i] ~ /^, [A-Z]/) {
                    good = 0
                    for (k = 1; k <= n[word]; k++) if (index(substr(after[i], 3), title[word, k]) == 1) good = 1
                    if (!good) print where ": no such section: " word after[i]
                }
            }
            if (own ~ /\.[ch]$/ || own ~ /README\.md$/) {
                each(text, "[A-Za-z0-9_]+")
                for (i = 1; i <= count; i++) {
                    if (found[i] ~ /^(llm|LLM)_[A-Za-z0-9_]*[A-Za-z0-9]$/ && !(found[i] in known) && before[i] !~ /[<>*]/ && after[i] !~ /^[<*{]/)
                        print where ": no such name: " found[i]
                }
            }
        }' "$work/text"
    # Markdown links to files of the tree
    ((${#pages[@]} == 0)) || grep -noE '\]\([^)]*\)' "${pages[@]}" /dev/null | while IFS=: read -r page line link; do
        link=${link#](}
        link=${link%)}
        link=${link%%#*}
        [[ -z $link || $link == http* || -e ${page%/*}/$link || ($page != */* && -e $link) ]] || echo "$page:$line: no such file: $link"
    done
    # What manual pages cite
    for page in "${manuals[@]}"; do
        # a section of the page itself, or of one named beside it (".Xr llm-train 1 , Sx Log"; ".Sx Log", "of", ".Xr llm-train 1")
        sed 's/$/;/' "$page" | tr '\n' ' ' |
            grep -oE '(\bXr llm[a-z-]* [0-9] ,;? \.?)?\bSx "?[A-Z][^".,;:)]*[^".,;:) ](; (of|in); \.Xr llm[a-z-]* [0-9])?' |
            while read -r cite; do
                cited=$(sed -nE 's/^.*Xr (llm[a-z-]*) ([0-9]).*$/man\/\1.\2/p' <<< "$cite")
                title=$(sed -E 's/^.*Sx "?//; s/;.*$//' <<< "$cite")
                [[ -n $cited && ! -f $cited ]] || grep -qE "^\.S[hs] \"?$title\"?\$" "${cited:-$page}" || echo "$page: no such section: $title"
            done
        while read -r name section; do
            [[ -f man/$name.$section ]] || echo "$page: no such page: $name($section)"
        done < <(grep -oE '\bXr llm[a-z-]* [0-9]' "$page" | cut -c4-)
    done
} > "$work/bad"
cat "$work/bad"
[[ ! -s $work/bad ]]

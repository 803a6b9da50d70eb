#!/bin/sh
# Are the command, the library and both modules for nginx built with the distribution's hardening? tests/hardening.sh BUILD
# readelf shows the linker's part. The compiler's leaves traces: calls of __stack_chk_fail and of fortified functions, and at
# the entries of functions the instructions of indirect branch tracking (x86-64) or pointer authentication (arm64). The
# file's notes would have only those that the C library's start files have, too; Debian 12's have none.
set -eu
[ $# -eq 1 ] || { echo "usage: tests/hardening.sh BUILD" >&2; exit 2; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
bad=0

# has FILE WHAT PATTERN SOURCE: the listing SOURCE has such a line.
has() {
    grep -Eq -e "$3" "$scratch/$4" || { echo "$1: no $2"; bad=1; }
}

for file in weir libweir.so libweir-store.so nginx/ngx_http_weir_module.so nginx/ngx_stream_weir_module.so; do
    path=$1/$file
    for listing in file-header program-headers dynamic dyn-syms notes; do
        readelf --wide --$listing "$path" >"$scratch/$listing"
    done
    has "$file" "position-independent code" '^ *Type: +DYN ' file-header
    [ "$file" != weir ] || has "$file" "PIE flag" 'FLAGS_1.*PIE' dynamic
    has "$file" "read-only relocations" ' GNU_RELRO ' program-headers
    has "$file" "binding at start" 'BIND_NOW|FLAGS_1.* NOW' dynamic
    has "$file" "stack without the right to execute" ' GNU_STACK .* RW +0x' program-headers
    ! grep -Eq ' LOAD .* RWE ' "$scratch/program-headers" || { echo "$file: memory both writable and executable"; bad=1; }
    has "$file" "stack protector" '__stack_chk_fail' dyn-syms
    has "$file" "fortified calls" '__[a-z]+_chk(@|$)' dyn-syms
    case $(sed -n 's/^ *Machine: *//p' "$scratch/file-header") in
    *X86-64) entry=endbr64 ;;
    AArch64) entry=paciasp ;;
    *) continue ;;
    esac
    # Stack clash protection touches each page of a large frame: or of nothing to memory on the stack (x86-64), a store of zero (arm64).
    case $entry in
    endbr64) probe='or[ql] +\$0x0,[0-9a-fx]*\(%[re]sp\)' large='sub +\$0x[0-9a-f]{4,},%rsp' ;;
    *) probe='str[[:space:]]+xzr, \[sp, #1024\]' large='sub[[:space:]]+sp, sp, #0x[0-9a-f]+, lsl #12' ;;
    esac
    objdump --disassemble "$path" >"$scratch/code"
    # The small library may have no large frame at all.
    if [ "$file" != libweir-store.so ] || grep -Eq -e "$large" "$scratch/code"; then
        has "$file" "stack clash protection" "$probe" code
    fi
    marked=$(grep -c "[[:space:]]$entry\$" "$scratch/code" || true)
    [ "$marked" -ge 100 ] || { echo "$file: $marked functions begin with $entry: no branch protection"; bad=1; }
done
[ "$bad" -eq 0 ] || exit 1
echo "hardened: weir, libweir.so, libweir-store.so and both modules"

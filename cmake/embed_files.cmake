# SPDX-License-Identifier: Apache-2.0
#
#   cmake -DOUT=file.cc -DFROM=folder "-DFILES=a;b" -P embed_files.cmake
#
# Writes the definition of tessera::kWebFiles (src/server/web_page.h): each file's name, bytes and
# the SHA-256 of them.
set(arrays "")
set(rows "")
set(index 0)
foreach(file IN LISTS FILES)
  file(READ ${FROM}/${file} hex HEX)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
  string(REGEX REPLACE "(................................................................................)"
         "\\1\n" bytes "${bytes}")
  file(SHA256 ${FROM}/${file} hash)
  string(APPEND arrays "constexpr unsigned char kFile${index}[] = {\n${bytes}};\n")
  string(APPEND rows "    {\"${file}\", kFile${index}, sizeof(kFile${index}), \"${hash}\"},\n")
  math(EXPR index "${index} + 1")
endforeach()
file(WRITE ${OUT}.new
  "// Made by cmake/embed_files.cmake from web/.\n#include \"server/web_page.h\"\n\nnamespace tessera {\nnamespace {\n\n"
  "${arrays}\nconstexpr WebFile kFiles[] = {\n${rows}};\n\n}  // namespace\n\n"
  "const std::span<const WebFile> kWebFiles = kFiles;\n\n}  // namespace tessera\n")
file(RENAME ${OUT}.new ${OUT})

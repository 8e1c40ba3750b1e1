# cmake -DFOLDER=folder -DFILES="a,b" -DHEADER=header.h -DFUNCTION=Name -DOUTPUT=file.cc -P EmbedFiles.cmake:
# embeds the bytes of files, in the order of their list, as the function that the header declares.
string(REPLACE "," ";" files ${FILES})
set(arrays "")
set(rows "")
set(number 0)
foreach(file ${files})
  file(READ ${FOLDER}/${file} bytes HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
  string(APPEND arrays "const unsigned char kFile${number}[] = {${bytes}};\n")
  string(APPEND rows "    {\"${file}\", {reinterpret_cast<const char*>(kFile${number}), sizeof kFile${number}}},\n")
  math(EXPR number "${number} + 1")
endforeach()
file(WRITE ${OUTPUT} "#include \"${HEADER}\"

namespace genesis {
namespace {
${arrays}}  // namespace

const std::vector<EmbeddedFile>& ${FUNCTION}() {
  static const auto* const files = new std::vector<EmbeddedFile>{
${rows}  };
  return *files;
}

}  // namespace genesis
")

# cmake -DINPUT=file -DOUTPUT=file.cc -DNAME=name -P EmbedFile.cmake: embeds the bytes of a file as
# `extern const unsigned char genesis::<name>[]` and its size as `genesis::<name>Size`.
file(READ ${INPUT} bytes HEX)
string(LENGTH "${bytes}" digits)
math(EXPR size "${digits} / 2")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
file(WRITE ${OUTPUT} "#include <cstddef>
namespace genesis {
extern const unsigned char ${NAME}[];
extern const std::size_t ${NAME}Size;
const unsigned char ${NAME}[] = {${bytes}};
const std::size_t ${NAME}Size = ${size};
}  // namespace genesis
")

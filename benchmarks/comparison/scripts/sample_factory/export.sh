# answer: not part of it
# evidence: ^0 of [1-9]
# remark: The checkpoint is a file of torch with the weights; the network is built by the library.
. ./show.sh
search_in sample_factory "onnx|torch\.jit\.(save|trace)"

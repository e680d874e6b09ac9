// Package models has known networks as structs. Their weights have the names and layouts of the
// PyTorch originals, so PyTorch and this package can load each other's files.
//
// A program makes a model (NewGPT, ResNet18), and may download published weights for it
// ([Pretrained]). It trains or fine-tunes the model like any other struct of layers.
//
//   - Language: [GPT] is OpenAI's GPT-2 in any size, with [GPT.Generate] and [GPT.Stream]. [BERT]
//     has the heads [MaskedLM] and [SequenceClassifier]. The names are Hugging Face's. Tokens are
//     int64 tensors [batch, length]. Package data/text converts text to tokens.
//   - Vision: [MLP], [LeNet] and [CNN] are for small images. [ResNet] and [ViT] have torchvision's
//     names. Images are floating point tensors [batch, channels, height, width].
//
// A constructor panics with an *[Error] if the options contradict each other, because this is a
// mistake in the program. An example is a width that is not a multiple of the number of heads.
// Methods that load or generate return errors.
package models

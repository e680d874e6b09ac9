// Package models has known networks as structs. Their weights have the names and layouts of the
// PyTorch originals, so files of weights go both ways.
//
// One makes a model (NewGPT, ResNet18), or fetches published weights for it ([Pretrained]), and
// trains or fine-tunes it like any other struct of layers.
//
//   - Language: [GPT] is OpenAI's GPT-2 in any size, with [GPT.Generate] and [GPT.Stream]. [BERT]
//     has the heads [MaskedLM] and [SequenceClassifier]. The names are Hugging Face's. Tokens are
//     int64 tensors [batch, length]. Package data/text makes tokens of text.
//   - Vision: [MLP], [LeNet] and [CNN] are for small images. [ResNet] and [ViT] have torchvision's
//     names. Images are floating point tensors [batch, channels, height, width].
//
// A constructor panics with an *[Error] when the options contradict each other, such as a width
// that the heads do not divide: that is a mistake in the program. Methods that load or generate
// return errors.
package models

package cu

// StructBytes is the size of the struct that [CallStruct] passes by value: that of ncclUniqueId.
const StructBytes = 128

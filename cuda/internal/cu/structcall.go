package cu

// StructBytes is the size of the struct that [CallStruct] passes by value: the size of
// ncclUniqueId.
const StructBytes = 128

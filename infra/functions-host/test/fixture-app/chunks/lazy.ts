export const text = "loaded when first needed";

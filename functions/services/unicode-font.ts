import path from "node:path";

/** Font of PDF files. The build copies the font next to the bundle. */
export const UNICODE_FONT = path.join(import.meta.dirname, "fonts", "unifontex-latin-400-normal.woff");

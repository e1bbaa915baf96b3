import path from "node:path";

/** The path of the font in PDF files. It contains the characters of most scripts. The build copies it next to the bundle. */
export const UNICODE_FONT = path.join(import.meta.dirname, "fonts", "unifontex-latin-400-normal.woff");

import path from "node:path";

/**
 * The path of the font in PDF files. The build copies it next to the bundle. Despite its name, the font contains the characters
 * of most scripts.
 */
export const UNICODE_FONT = path.join(import.meta.dirname, "fonts", "unifontex-latin-400-normal.woff");

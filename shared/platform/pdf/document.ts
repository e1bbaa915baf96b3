import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { PDFDocument } from "pdf-lib";
import { PRODUCT } from "../product.ts";
import { numberPages, Sheet } from "./sheet.ts";
import { Typesetter } from "./typesetter.ts";
import { openTypeFromWoff } from "./woff.ts";

/** Metadata of a document. */
export interface DocumentFacts {
  title: string;
  createdAt: Date;
  /** WOFF file of the font for characters outside Latin. Defaults to the installed package, which a bundle does not contain. */
  unicodeFont?: string | undefined;
}

/** Creates a PDF document: `write` adds the content, then every page gets the footer `foot` and its number. */
export async function createDocument(
  { title, createdAt, unicodeFont }: DocumentFacts,
  foot: string,
  write: (sheet: Sheet) => void,
): Promise<Uint8Array> {
  const document = await PDFDocument.create();
  const typesetter = await Typesetter.create(
    document,
    openTypeFromWoff(await readFile(unicodeFont ?? installedFont())),
  );
  document.setTitle(title, { showInWindowTitleBar: true });
  document.setLanguage("en");
  document.setCreator(PRODUCT);
  document.setCreationDate(createdAt);
  document.setModificationDate(createdAt);
  write(new Sheet(document, typesetter));
  numberPages(document, typesetter, foot);
  return await document.save();
}

/** Path of the font if the service is not bundled. */
const installedFont = (): string =>
  createRequire(import.meta.url).resolve("@fontsource/unifontex/files/unifontex-latin-400-normal.woff");

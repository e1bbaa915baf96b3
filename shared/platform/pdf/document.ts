import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { PDFDocument } from "pdf-lib";
import { numberPages, Sheet } from "./sheet.ts";
import { Typesetter } from "./typesetter.ts";
import { openTypeFromWoff } from "./woff.ts";

/** What a document says of itself. */
export interface DocumentFacts {
  title: string;
  createdAt: Date;
  /** A WOFF file; without one the installed font, which a bundle does not have. */
  unicodeFont?: string | undefined;
}

/** Writes one document: `write` its pages, then their foot with `foot` and their numbers. */
export async function createDocument(
  { title, createdAt, unicodeFont }: DocumentFacts,
  foot: string,
  write: (sheet: Sheet) => void,
): Promise<Uint8Array> {
  const document = await PDFDocument.create();
  const set = await Typesetter.create(document, openTypeFromWoff(await readFile(unicodeFont ?? installedFont())));
  document.setTitle(title, { showInWindowTitleBar: true });
  document.setLanguage("en");
  document.setCreator("Credential and Secret Lifecycle Service");
  document.setCreationDate(createdAt);
  document.setModificationDate(createdAt);
  write(new Sheet(document, set));
  numberPages(document, set, foot);
  return await document.save();
}

/** Where the font lies while the service is not bundled. */
const installedFont = (): string =>
  createRequire(import.meta.url).resolve("@fontsource/unifontex/files/unifontex-latin-400-normal.woff");

import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { decodePDFRawStream, PDFArray, PDFDocument, type PDFRawStream } from "pdf-lib";
import { Sheet } from "../../shared/platform/pdf/sheet.ts";
import { Typesetter } from "../../shared/platform/pdf/typesetter.ts";
import { openTypeFromWoff } from "../../shared/platform/pdf/woff.ts";

/** Contents of a page, in points from its lower left corner. */
interface PageContents {
  /** Each with its color as PDF writes it: red, green and blue from 0 to 1. */
  texts: { text: string; x: number; y: number; color: string }[];
  /** Filled rectangles. */
  boxes: { x: number; y: number; width: number; height: number }[];
  /** Straight lines. */
  rules: { x: number; y: number; toX: number; toY: number; color: string }[];
}

/** Draws on a new PDF with the project's own drawing functions, reads the PDF back, and returns the contents of each page. */
export async function drawPages(
  draw: (sheet: Sheet, set: Typesetter, document: PDFDocument) => void,
): Promise<PageContents[]> {
  const document = await PDFDocument.create();
  const font = createRequire(import.meta.url).resolve("@fontsource/unifontex/files/unifontex-latin-400-normal.woff");
  const set = await Typesetter.create(document, openTypeFromWoff(await readFile(font)));
  draw(new Sheet(document, set), set, document);
  return await readPages(await document.save());
}

/** Returns the contents of each page of a PDF. */
export async function readPages(data: Uint8Array): Promise<PageContents[]> {
  const document = await PDFDocument.load(data);
  return document.getPages().map(({ node }) => {
    const streams = node.Contents();
    if (!(streams instanceof PDFArray)) throw new Error("A page's content is no list of streams.");
    const content = streams
      .asArray()
      .map((reference) => decodePDFRawStream(node.context.lookup(reference) as PDFRawStream).decode())
      .map((bytes) => Buffer.from(bytes).toString("latin1"))
      .join("\n");
    const numbersIn = (pattern: RegExp) => [...content.matchAll(pattern)].map(([, ...groups]) => groups.map(Number));
    // The patterns match the operators that pdf-lib writes: `rg … Tm … Tj` places and shows a text in hexadecimal, `cm … m … l`
    // draws a rectangle from its lower left corner, and `RG … m … l S` strokes a line.
    return {
      texts: [...content.matchAll(/(.+) rg\n.+ Tf\n1 0 0 1 (\S+) (\S+) Tm\n<(\w+)> Tj/g)].map(
        ([, color, x, y, hex]) => ({
          text: Buffer.from(hex!, "hex").toString("latin1"),
          x: Number(x),
          y: Number(y),
          color: color!,
        }),
      ),
      boxes: numbersIn(/1 0 0 1 (\S+) (\S+) cm\n(?:1 0 0 1 0 0 cm\n)*0 0 m\n0 (\S+) l\n(\S+) \S+ l/g).map(
        ([x, y, height, width]) => ({ x: x!, y: y!, width: width!, height: height! }),
      ),
      rules: [...content.matchAll(/(.+) RG\n.+ w\n.+ d\n(?:.+ m\n)*(\S+) (\S+) m\n(\S+) (\S+) l\nS/g)].map(
        ([, color, ...ends]) => {
          const [x, y, toX, toY] = ends.map(Number) as [number, number, number, number];
          return { x, y, toX, toY, color: color! };
        },
      ),
    };
  });
}

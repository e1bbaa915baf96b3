import {
  beginText,
  endText,
  type PDFDocument,
  type PDFFont,
  type PDFName,
  type PDFPage,
  type RGB,
  rgb,
  StandardFonts,
  setFillingColor,
  setFontAndSize,
  setTextMatrix,
  showText,
} from "pdf-lib";

// Sets text in a PDF: chooses a font for each character, measures lines, and reverses right-to-left text.

export type Style = "regular" | "bold";

/** Characters in one font, left to right on the page. */
interface Run {
  font: PDFFont;
  text: string;
  rightToLeft: boolean;
}

const RIGHT_TO_LEFT = /[\p{Script=Hebrew}\p{Script=Arabic}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}]/u;
const INVISIBLE = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/u;
/** Color of text. */
export const INK = rgb(0.12, 0.14, 0.17);

/**
 * Draws text of any script in a PDF: in Helvetica if it has the character, otherwise in the embedded Unicode font. A character
 * that both fonts lack is drawn as its code point, such as [U+20000].
 */
export class Typesetter {
  private readonly fonts: Record<Style, PDFFont>;
  private readonly unicode: PDFFont;
  /** Code points that Helvetica has. */
  private readonly latin: ReadonlySet<number>;
  private readonly hasUnicodeGlyph: (codePoint: number) => boolean;
  /** Widths of characters at size 1, by font. */
  private readonly widths = new Map<PDFFont, Map<string, number>>();
  /** Resource names of the fonts on each page. */
  private readonly keys = new Map<PDFPage, Map<PDFFont, PDFName>>();

  private constructor(fonts: Record<Style, PDFFont>, unicode: PDFFont, hasGlyph: (codePoint: number) => boolean) {
    this.fonts = fonts;
    this.unicode = unicode;
    this.latin = new Set(fonts.regular.getCharacterSet());
    this.hasUnicodeGlyph = hasGlyph;
  }

  static async create(document: PDFDocument, openType: Uint8Array): Promise<Typesetter> {
    const { default: fontkit } = await import("@pdf-lib/fontkit");
    document.registerFontkit(fontkit);
    const glyphs = fontkit.create(openType) as unknown as { hasGlyphForCodePoint(codePoint: number): boolean };
    const regular = await document.embedFont(StandardFonts.Helvetica);
    const bold = await document.embedFont(StandardFonts.HelveticaBold);
    const unicode = await document.embedFont(openType, { subset: true });
    return new Typesetter({ regular, bold }, unicode, (codePoint) => glyphs.hasGlyphForCodePoint(codePoint));
  }

  /** Returns the text with only characters that can be set. */
  printable(text: string): string {
    let result = "";
    for (const character of text) {
      const codePoint = character.codePointAt(0)!;
      if (/\s/.test(character)) result += " ";
      else if (!INVISIBLE.test(character) && (this.latin.has(codePoint) || this.hasUnicodeGlyph(codePoint)))
        result += character;
      else result += `[U+${codePoint.toString(16).toUpperCase().padStart(4, "0")}]`;
    }
    return result;
  }

  /** Returns the width of the text in points. */
  width(text: string, style: Style, size: number): number {
    let units = 0;
    for (const character of text) units += this.characterWidth(character, style);
    return units * size;
  }

  /**
   * Breaks text into lines of at most `width` points: after a space in the second half of a line, otherwise at the last
   * space, separator or opening bracket, otherwise anywhere.
   */
  lines(text: string, style: Style, size: number, width: number): string[] {
    const lines: string[] = [];
    let line = "";
    let lineWidth = 0;
    // Positions in the line where it can be broken.
    let spaceAt = 0;
    let separatorAt = 0;
    for (const character of this.printable(text)) {
      const advance = this.characterWidth(character, style) * size;
      if (/[{[(]/.test(character)) separatorAt = line.length;
      if (lineWidth + advance > width && line !== "") {
        const cut = (spaceAt > line.length / 2 ? spaceAt : Math.max(spaceAt, separatorAt)) || line.length;
        lines.push(line.slice(0, cut).trimEnd());
        line = line.slice(cut);
        lineWidth = this.width(line, style, size);
        spaceAt = 0;
        separatorAt = 0;
      }
      if (line === "" && character === " ") continue;
      line += character;
      lineWidth += advance;
      if (character === " ") spaceAt = line.length;
      else if (/[,;:/@._}\])-]/.test(character)) separatorAt = line.length;
    }
    if (line.trim() !== "" || lines.length === 0) lines.push(line.trimEnd());
    return lines;
  }

  /** Draws one line of printable text with its baseline at `y`. */
  draw(page: PDFPage, text: string, options: { x: number; y: number; size: number; style?: Style; color?: RGB }): void {
    const { y, size, style = "regular", color = INK } = options;
    let { x } = options;
    for (const run of this.runs(text, style)) {
      page.pushOperators(
        beginText(),
        setFillingColor(color),
        setFontAndSize(this.key(page, run.font), size),
        setTextMatrix(1, 0, 0, 1, x, y),
        showText(run.font.encodeText(run.rightToLeft ? reverseGraphemes(run.text) : run.text)),
        endText(),
      );
      x += this.width(run.text, style, size);
    }
  }

  /** Splits text into runs of one font. Consecutive right-to-left words and single spaces between them form one run. */
  private runs(text: string, style: Style): Run[] {
    const runs: Run[] = [];
    const characters = [...text];
    for (const [index, character] of characters.entries()) {
      const last = runs.at(-1);
      const continuesRun = character === " " && last?.rightToLeft && RIGHT_TO_LEFT.test(characters[index + 1] ?? "");
      const rightToLeft = continuesRun || RIGHT_TO_LEFT.test(character);
      const font = rightToLeft ? this.unicode : this.fontOf(character, style);
      if (last && last.font === font && last.rightToLeft === rightToLeft) last.text += character;
      else runs.push({ font, text: character, rightToLeft });
    }
    return runs;
  }

  private fontOf(character: string, style: Style): PDFFont {
    return this.latin.has(character.codePointAt(0)!) ? this.fonts[style] : this.unicode;
  }

  private characterWidth(character: string, style: Style): number {
    const font = this.fontOf(character, style);
    const widths = getOrCreate(this.widths, font, () => new Map<string, number>());
    return getOrCreate(widths, character, () => font.widthOfTextAtSize(character, 1));
  }

  /** Returns the page's resource name of a font. pdf-lib's `drawText` would add one for every change of font. */
  private key(page: PDFPage, font: PDFFont): PDFName {
    const keys = getOrCreate(this.keys, page, () => new Map<PDFFont, PDFName>());
    return getOrCreate(keys, font, () => page.node.newFontDictionary(font.name, font.ref));
  }
}

const graphemes = new Intl.Segmenter("und", { granularity: "grapheme" });

/** Reverses the graphemes of right-to-left text, because the font engine sets this font from left to right in every script. */
const reverseGraphemes = (text: string): string =>
  Array.from(graphemes.segment(text), ({ segment }) => segment)
    .reverse()
    .join("");

function getOrCreate<K, V>(memory: Map<K, V>, key: K, make: () => V): V {
  const existing = memory.get(key);
  if (existing !== undefined) return existing;
  const created = make();
  memory.set(key, created);
  return created;
}

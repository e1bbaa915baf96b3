import { decodePDFRawStream, PDFDocument, PDFRawStream } from "pdf-lib";

/** Returns the text of a PDF that uses a standard font such as Helvetica. Each drawn text is one line. */
export async function pdfText(data: Uint8Array): Promise<string> {
  const document = await PDFDocument.load(data);
  const texts: string[] = [];
  for (const [, object] of document.context.enumerateIndirectObjects()) {
    if (!(object instanceof PDFRawStream)) continue;
    const content = Buffer.from(decodePDFRawStream(object).decode()).toString("latin1");
    // `<48656C6C6F> Tj` shows the text "Hello".
    for (const [, hex] of content.matchAll(/<([0-9A-F]+)> Tj/g))
      texts.push(Buffer.from(hex!, "hex").toString("latin1"));
  }
  return texts.join("\n");
}

import { once } from "node:events";
import { createGzip } from "node:zlib";

/** Collects one answer, compressed as it is made where the caller takes that. */
export interface Sink {
  write(text: string): Promise<void>;
  /** Bytes of the answer so far. Compressed ones lag behind a little. */
  readonly bytes: number;
  end(): Promise<Uint8Array>;
}

export function createSink(gzip: boolean): Sink {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  const keep = (chunk: Uint8Array) => {
    chunks.push(chunk);
    bytes += chunk.length;
  };
  if (!gzip) {
    return {
      async write(text) {
        keep(Buffer.from(text));
      },
      get bytes() {
        return bytes;
      },
      async end() {
        return Buffer.concat(chunks.splice(0));
      },
    };
  }
  const compressor = createGzip();
  compressor.on("data", keep);
  return {
    async write(text) {
      if (!compressor.write(text)) await once(compressor, "drain");
    },
    get bytes() {
      return bytes;
    },
    async end() {
      compressor.end();
      await once(compressor, "end");
      return Buffer.concat(chunks.splice(0));
    },
  };
}

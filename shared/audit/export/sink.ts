import { once } from "node:events";
import { createGzip } from "node:zlib";

/** Collects the data of one response of an export, and compresses it while it is written if the client accepts gzip. */
export interface Sink {
  write(text: string): Promise<void>;
  /** Number of bytes so far. With compression, recently written text may not be counted yet. */
  readonly bytes: number;
  end(): Promise<Uint8Array>;
}

export function createSink(gzip: boolean): Sink {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  const addChunk = (chunk: Uint8Array) => {
    chunks.push(chunk);
    bytes += chunk.length;
  };
  if (!gzip) {
    return {
      async write(text) {
        addChunk(Buffer.from(text));
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
  compressor.on("data", addChunk);
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

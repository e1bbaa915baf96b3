import { once } from "node:events";
import { createGzip } from "node:zlib";

/** Collects one response, compressed on the fly if the client accepts that. */
export interface Sink {
  write(text: string): Promise<void>;
  /** Bytes of the response so far. The compressed size lags behind a little. */
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

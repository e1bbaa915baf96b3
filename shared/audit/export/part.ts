import type { ExportedRow, Position } from "./entry-pages.ts";

/** Writes one part of an export in one format. */
export interface PartWriter {
  begin(): Promise<void>;
  write(rows: ExportedRow[]): Promise<void>;
  /**
   * Completes the part.
   *
   * @param upTo - The last row of the part, if another part follows.
   */
  end(upTo: Position | undefined, nextCursor: string | null): Promise<void>;
}

import type { Position, WalkedRow } from "./entry-pages.ts";

/** Writes one part of an export in one format. */
export interface PartWriter {
  begin(): Promise<void>;
  write(rows: WalkedRow[]): Promise<void>;
  /** `upTo` is the last entry of a part, if other parts follow. */
  end(upTo: Position | undefined, nextCursor: string | null): Promise<void>;
}

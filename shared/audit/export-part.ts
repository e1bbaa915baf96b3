import type { Clock } from "../runtime.ts";
import type { Tables } from "../storage/tables.ts";
import type { Anchor } from "./anchor.ts";
import type { Position, Walked } from "./export-walk.ts";
import type { Trust } from "./trust.ts";

export interface ExportDependencies {
  tables: Tables;
  clock: Clock;
  trust: Trust;
  anchor: Anchor | undefined;
}

/** Writes one part of an export in one format. */
export interface PartWriter {
  begin(): Promise<void>;
  write(rows: Walked[]): Promise<void>;
  /** `upTo` is the last entry of a part that others follow. */
  end(upTo: Position | undefined, nextCursor: string | null): Promise<void>;
}

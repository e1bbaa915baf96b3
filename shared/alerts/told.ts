import * as z from "zod";
import { entity } from "../storage/entity.ts";
import { keyEnd } from "../storage/keys.ts";
import { put, type Tables } from "../storage/tables.ts";
import { type AssetNews, assetMarks, markOf, type News, thresholdOf } from "./news.ts";

/** What a rule has told: a partition per rule, a row per telling. A mark is only ever added, so writing one twice is harmless. */
export const Told = entity("AlertTold", z.object({ deliveryId: z.string() }));

/** Up to here marks are looked up one by one, beyond it a range of them is read. */
const SINGLE_LOOK_UPS = 10;

export function createTold(tables: Tables) {
  async function thresholdsIn(ruleId: string, from: string, before: string, into: Map<string, number>): Promise<void> {
    const range = { partitionKey: ruleId, from, before, select: [] as const };
    for await (const rows of tables.pages(Told, range)) {
      for (const { rowKey } of rows) {
        const asset = rowKey.slice(0, rowKey.lastIndexOf("!") + 1);
        const threshold = thresholdOf(rowKey);
        into.set(asset, Math.min(threshold, into.get(asset) ?? threshold));
      }
    }
  }

  return {
    /** Of these assets, all of one type and in the order of the index, those not told of this or a lower threshold. */
    async untoldAssets(ruleId: string, news: readonly AssetNews[]): Promise<AssetNews[]> {
      const told = new Map<string, number>();
      const marks = news.map(assetMarks);
      if (news.length <= SINGLE_LOOK_UPS) {
        await Promise.all(marks.map((mark) => thresholdsIn(ruleId, mark, keyEnd(mark), told)));
      } else await thresholdsIn(ruleId, marks[0]!, keyEnd(marks.at(-1)!), told);
      return news.filter((one, index) => one.threshold < (told.get(marks[index]!) ?? Number.POSITIVE_INFINITY));
    },

    /** Those of which there is no mark. One request each: for the few scans and violations of a run. */
    async untold<T extends News>(ruleId: string, news: readonly T[]): Promise<T[]> {
      const known = new Set<string>();
      for (let start = 0; start < news.length; start += SINGLE_LOOK_UPS) {
        await Promise.all(
          news.slice(start, start + SINGLE_LOOK_UPS).map(async (one) => {
            if (await tables.get(Told, ruleId, markOf(one))) known.add(markOf(one));
          }),
        );
      }
      return news.filter((one) => !known.has(markOf(one)));
    },

    async mark(ruleId: string, deliveryId: string, news: readonly News[]): Promise<void> {
      await tables.write(
        Told.table,
        ruleId,
        news.map((one) => put(Told, markOf(one), { deliveryId })),
      );
    },
  };
}

export type ToldMarks = ReturnType<typeof createTold>;

import { getDomain } from "tldts";
import * as z from "zod";
import type { Clock } from "../platform/runtime.ts";
import { entity } from "../platform/storage/entity.ts";
import { keyText } from "../platform/storage/keys.ts";
import type { Tables } from "../platform/storage/tables.ts";
import { DAY_MS, SECOND_MS } from "../platform/time.ts";
import { type AuthorityRecord, TABLE } from "./authority.ts";

/**
 * Budgets of authorities: how many certificates they issue for a registered domain within some days. Shared by all certificates
 * of the domain. An authority that answered with `Retry-After` is paused for that time.
 */

const MAX_USES = 1000;
const Budgets = entity(
  TABLE,
  z.object({ uses: z.array(z.object({ runId: z.string(), at: z.string() })).max(MAX_USES) }),
);
const Pauses = entity(TABLE, z.object({ until: z.string() }));

export { Budgets, Pauses };
export const BUDGETS = "budgets";
export const PAUSES = "pauses";

export const budgetKey = (authorityId: string, domain: string): string => `${authorityId}|${keyText(domain)}`;

/** Returns the registered domains of names: the part that an organization registered below a public suffix. */
export const registeredDomains = (names: readonly string[]): string[] => [
  ...new Set(names.map((name) => getDomain(name, { allowPrivateDomains: true }) ?? name.replace(/^\*\./, ""))),
];

type Budgeted = Pick<AuthorityRecord, "authorityId" | "certificatesPerDomain" | "budgetDays">;

export interface CertificateBudgets {
  /** Returns when the authority may get another order for the names. Undefined: now. */
  freeAt(authority: Budgeted, names: readonly string[]): Promise<Date | undefined>;
  /** Uses the budget for a renewal. A second call for the same renewal uses nothing. Returns as `freeAt`. */
  use(authority: Budgeted, names: readonly string[], runId: string): Promise<Date | undefined>;
  /** Sends no order to an authority until a time. */
  pause(authorityId: string, until: Date): Promise<void>;
}

export function createBudgets({ tables, clock }: { tables: Tables; clock: Clock }): CertificateBudgets {
  const recent = (uses: readonly { runId: string; at: string }[], { budgetDays }: Budgeted) => {
    const since = new Date(clock.now().getTime() - budgetDays * DAY_MS).toISOString();
    return uses.filter(({ at }) => at > since);
  };
  const freeDate = (uses: readonly { at: string }[], { certificatesPerDomain, budgetDays }: Budgeted) => {
    const oldest = uses.at(-certificatesPerDomain);
    return oldest && new Date(Date.parse(oldest.at) + budgetDays * DAY_MS + SECOND_MS);
  };
  const latest = (dates: readonly (Date | undefined)[]) =>
    dates.reduce((last, date) => (date && (!last || date > last) ? date : last), undefined);

  async function pausedUntil(authorityId: string): Promise<Date | undefined> {
    const until = (await tables.get(Pauses, PAUSES, authorityId))?.until;
    return until !== undefined && Date.parse(until) > clock.now().getTime() ? new Date(until) : undefined;
  }

  return {
    async freeAt(authority, names) {
      const dates = [await pausedUntil(authority.authorityId)];
      for (const domain of registeredDomains(names)) {
        const row = await tables.get(Budgets, BUDGETS, budgetKey(authority.authorityId, domain));
        dates.push(freeDate(recent(row?.uses ?? [], authority), authority));
      }
      return latest(dates);
    },

    async use(authority, names, runId) {
      const paused = await pausedUntil(authority.authorityId);
      if (paused) return paused;
      for (const domain of registeredDomains(names)) {
        let free: Date | undefined;
        await tables.modify(Budgets, BUDGETS, budgetKey(authority.authorityId, domain), (row) => {
          const uses = recent(row?.uses ?? [], authority);
          free = undefined;
          if (uses.some((use) => use.runId === runId)) return undefined;
          free = freeDate(uses, authority);
          return free ? undefined : { uses: [...uses, { runId, at: clock.now().toISOString() }].slice(-MAX_USES) };
        });
        if (free) return free;
      }
      return undefined;
    },

    async pause(authorityId, until) {
      await tables.put(Pauses, PAUSES, authorityId, { until: until.toISOString() });
    },
  };
}

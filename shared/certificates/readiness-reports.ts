import pMap from "p-map";
import type { AssetRecord } from "../inventory/asset.ts";
import { ownersOf } from "../inventory/holder.ts";
import type { Inventory } from "../inventory/inventory.ts";
import type { AssetFilter } from "../inventory/query.ts";
import { MAX_LIMIT, type Page, type PageRequest } from "../platform/http/paging.ts";
import { Problem } from "../platform/http/problem.ts";
import { undefinedIfLeftOut } from "../platform/storage/left-out-rows.ts";
import {
  type CertificateUses,
  type FoundReadiness,
  type Readiness,
  ReadinessCounter,
  type ReadinessFilter,
  type ReadinessSummary,
  readinessOf,
} from "./readiness.ts";
import { readChecks } from "./renewal-checks.ts";
import { certificateIdOf } from "./renewal-information.ts";

/** Reads the inventory and reports whether certificates are ready for shorter lifetimes: as a list, CSV and PDF. */

/** Maximum number of certificates in one part of a CSV file. A cursor continues with the rest. */
const CERTIFICATES_PER_PART = 5_000;
/** Maximum number of certificates in a PDF. A longer document would not be readable. */
export const MAX_PDF_CERTIFICATES = 2_000;
/** Maximum number of inventory pages that one list response reads with the filter `failing`, which no index covers. */
const MAX_PAGES = 10;
/** Maximum number of vaults' rows that are read at the same time. */
const MAX_CONCURRENT_READS = 16;

/** The readiness of certificates as a list, a CSV file and a PDF. */
export interface ReadinessReports {
  /**
   * Lists certificates by name, with the sums unless a cursor is given. The sums read all certificates: one request per 1,000,
   * and one per 1,000 dependencies.
   *
   * @param failing - True: only certificates with problems. False: only certificates without problems. With this filter, a page
   *   can be shorter than the limit.
   */
  list(
    filter: ReadinessFilter,
    request: PageRequest,
    failing?: boolean,
  ): Promise<{ page: Page<FoundReadiness>; summary: ReadinessSummary | null }>;
  /** Returns one part of the CSV file: up to 5,000 certificates, and a cursor for the rest. */
  part(
    filter: ReadinessFilter,
    cursor: string | undefined,
  ): Promise<{ items: FoundReadiness[]; nextCursor: string | null }>;
  /** Returns the PDF. @throws {Problem} invalidRequest when there are more than `MAX_PDF_CERTIFICATES` certificates. */
  pdf(filter: ReadinessFilter): Promise<Uint8Array>;
}

/** Creates the readiness reports. */
export function createReadinessReports(deps: {
  inventory: Pick<Inventory, "assets" | "moment" | "renewalChecks">;
  /** Returns the uses of the certificates of one vault, or of all. Undefined if consumers are not known. */
  usesOf: (vaultName: string | undefined) => Promise<CertificateUses | undefined>;
  ownerTag: string;
  /** Whether authorities are configured. Without them, no vault's row is read. */
  asksAuthorities: boolean;
  /** Path of a WOFF font file with the characters of other scripts. It is part of the bundle. */
  unicodeFont?: string;
}): ReadinessReports {
  const { inventory, usesOf, ownerTag, asksAuthorities, unicodeFont } = deps;

  /** Returns a page of certificates, by name. */
  async function certificates({ vault, subscription }: ReadinessFilter, request: PageRequest) {
    const filter: AssetFilter = {
      type: "certificate",
      source: "keyVault",
      counted: true,
      enabled: true,
      ...(vault !== undefined && { vault }),
      ...(subscription !== undefined && { subscription }),
    };
    const moment = await inventory.moment();
    const page = await inventory.assets.list(filter, request, moment);
    return { moment, page: { ...page, items: page.items.map(({ asset }) => asset) } };
  }

  const judge = (asset: AssetRecord, now: number, uses: CertificateUses | undefined): Readiness =>
    readinessOf(asset, { now, owner: ownersOf(asset, ownerTag)[0], uses });

  /**
   * Adds the last answer of each certificate's authority, which is in the vault's row. An answer about an earlier version of the
   * certificate is left out.
   */
  async function withChecks(items: readonly Readiness[]): Promise<FoundReadiness[]> {
    if (!asksAuthorities) return items.map((readiness) => ({ readiness, check: undefined }));
    const vaultNames = new Set(items.map(({ asset }) => asset.vaultName));
    const checksByVault = new Map(
      await pMap(
        vaultNames,
        async (vaultName) => {
          const bytes = await undefinedIfLeftOut(inventory.renewalChecks(vaultName));
          return [vaultName, bytes && readChecks(bytes)?.checks] as const;
        },
        { concurrency: MAX_CONCURRENT_READS },
      ),
    );
    return items.map((readiness) => {
      const { vaultName, name, certificate } = readiness.asset;
      const checks = checksByVault.get(vaultName) ?? {};
      const check = Object.hasOwn(checks, name.toLowerCase()) ? checks[name.toLowerCase()] : undefined;
      return { readiness, check: check?.id === certificateIdOf(certificate) ? check : undefined };
    });
  }

  async function* all(filter: ReadinessFilter): AsyncGenerator<{ assets: AssetRecord[]; now: number }> {
    for (let cursor: string | null | undefined; cursor !== null; ) {
      const { page, moment } = await certificates(filter, { limit: MAX_LIMIT, offset: 0, cursor });
      yield { assets: page.items, now: moment.now };
      cursor = page.nextCursor;
    }
  }

  async function summaryOf(filter: ReadinessFilter, uses: CertificateUses | undefined): Promise<ReadinessSummary> {
    const counter = new ReadinessCounter();
    for await (const { assets, now } of all(filter)) for (const asset of assets) counter.add(judge(asset, now, uses));
    return { ...counter.sum(), consumersKnown: uses !== undefined };
  }

  return {
    async list(filter, request, failing) {
      const uses = await usesOf(filter.vault);
      let { page, moment } = await certificates(filter, request);
      const matches: Readiness[] = [];
      for (let pages = 1; ; pages++) {
        const judged = page.items.map((asset) => judge(asset, moment.now, uses));
        matches.push(...judged.filter(({ problems }) => failing === undefined || problems.length > 0 === failing));
        // Examines whole inventory pages only, so that the inventory's cursor also continues this list.
        if (matches.length > 0 || page.nextCursor === null || pages === MAX_PAGES) break;
        ({ page, moment } = await certificates(filter, { ...request, cursor: page.nextCursor }));
      }
      const summary = request.cursor === undefined ? await summaryOf(filter, uses) : null;
      const total = failing === undefined ? {} : { total: null, totalAtLeast: matches.length };
      return { page: { ...page, ...total, items: await withChecks(matches) }, summary };
    },

    async part(filter, cursor) {
      const uses = await usesOf(filter.vault);
      const judged: Readiness[] = [];
      let next: string | null | undefined = cursor;
      while (next !== null && judged.length < CERTIFICATES_PER_PART) {
        const limit = Math.min(MAX_LIMIT, CERTIFICATES_PER_PART - judged.length);
        const { page, moment } = await certificates(filter, { limit, offset: 0, cursor: next });
        judged.push(...page.items.map((asset) => judge(asset, moment.now, uses)));
        next = page.nextCursor;
      }
      return { items: await withChecks(judged), nextCursor: next ?? null };
    },

    async pdf(filter) {
      const uses = await usesOf(filter.vault);
      const counter = new ReadinessCounter();
      const judged: Readiness[] = [];
      for await (const { assets, now } of all(filter)) {
        judged.push(...assets.map((asset) => judge(asset, now, uses)));
        if (judged.length <= MAX_PDF_CERTIFICATES) continue;
        throw new Problem(
          "invalidRequest",
          `A PDF contains at most ${MAX_PDF_CERTIFICATES} certificates, and there are more. Filter by vault or subscription, or use GET /compliance/certificates/readiness/csv, which has no limit.`,
        );
      }
      for (const readiness of judged) counter.add(readiness);
      const { now } = await inventory.moment();
      const { readinessDocument } = await import("./readiness-pdf.ts");
      return await readinessDocument(judged, {
        filter,
        summary: { ...counter.sum(), consumersKnown: uses !== undefined },
        createdAt: new Date(now),
        unicodeFont,
      });
    },
  };
}

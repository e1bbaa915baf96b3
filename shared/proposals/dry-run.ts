import { isDeepStrictEqual } from "node:util";
import type { ProposalRecord } from "./proposal.ts";

/** The answer of a dry run, as a proposal stores it. */
type DryRunAnswer = Pick<ProposalRecord, "dryRun" | "dryRunEtag">;

/** Matches a time. The plan of a rotation has the time at which it was made. */
const INSTANT = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?Z$/;

/** Returns whether two dry runs of a request returned the same. Times, and the person of a plan, can differ. */
export const isSameDryRun = (one: DryRunAnswer, other: DryRunAnswer): boolean =>
  one.dryRunEtag === other.dryRunEtag && isDeepStrictEqual(comparable(one.dryRun), comparable(other.dryRun));

const comparable = (json: string): unknown =>
  JSON.parse(json, (name, value: unknown) =>
    name === "requestedBy" || (typeof value === "string" && INSTANT.test(value)) ? null : value,
  ) as unknown;

/** Queries of the service's state that the navigation, the Overview page and other views share, with one response for all. */
import { api, type Schemas } from "../api/client.ts";
import { counted } from "./plural.ts";

/** Days of the score's history. */
const SCORE_DAYS = 90;

/** The coverage: how much of the company the last scans and discoveries read. */
export const useCoverage = (options: { staleTime?: number } = {}) => api.useQuery("get", "/api/coverage", {}, options);

/** The compliance score with its history. */
export const useScore = (options: { staleTime?: number } = {}) =>
  api.useQuery("get", "/compliance/score", { params: { query: { history: SCORE_DAYS } } }, options);

/** The numbers of alert rules and of notifications of the last days. */
export const useAlertSummary = (options: { staleTime?: number } = {}) =>
  api.useQuery("get", "/alerts/summary", {}, options);

/**
 * Returns the noun for a number of key vaults. A subscription that was not read can have any number of further vaults, so the
 * number then counts the known ones.
 */
export const vaultNoun = ({ subscriptions, gaps }: Pick<Schemas["Coverage"], "subscriptions" | "gaps">): string =>
  subscriptions.read < subscriptions.total || isListUnread({ gaps }) ? "known vault" : "vault";

/** Returns the number of gaps with the meaning of the word. */
export const gapsText = (gapsTotal: number): string =>
  `${counted(gapsTotal, "gap")}: ${gapsTotal === 1 ? "a resource" : "resources"} that the last scans could not read completely.`;

/** Returns whether the list of subscriptions itself could not be read, so that there can be further ones. */
export const isListUnread = ({ gaps }: Pick<Schemas["Coverage"], "gaps">): boolean =>
  gaps.some(({ kind }) => kind === "subscriptionList");

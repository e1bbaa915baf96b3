/** Queries of the service's state that the navigation, the Overview page and other views share, with one response for all. */
import { api } from "../api/client.ts";

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

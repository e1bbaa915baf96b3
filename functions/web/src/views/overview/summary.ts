import { api } from "../../api/client.ts";

/** The inventory summary that several cards share. The service aggregates it, so its size does not grow with the inventory. */
export const useSummary = () => api.useQuery("get", "/api/assets/summary", { params: { query: {} } });

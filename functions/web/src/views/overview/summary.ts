import { api } from "../../api/client.ts";

/** One query for the cards that are about the inventory: the service counts, however many assets and vaults there are. */
export const useSummary = () => api.useQuery("get", "/api/assets/summary", { params: { query: {} } });

import * as z from "zod";

/** Configuration of targets in key vaults. Empty, because the service writes with its own identity. */
export const AzureConfiguration = z.strictObject({});

import * as z from "zod";

/** Another key vault of the inventory is written with the service's own identity: there is nothing to configure. */
export const AzureConfiguration = z.strictObject({});

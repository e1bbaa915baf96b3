import { setTimeout as delay } from "node:timers/promises";
import { type Api, ApiError, signInAsAdministrator } from "./api.ts";
import { printTable } from "./table.ts";

// A step of `npm start`: runs the first scan of the started service and prints the inventory.

/** Interval of the status requests. The default limit of one user is 60 requests per minute. */
const POLL_MS = 1500;

interface Scan {
  scanId: string;
  status: string;
  failure: { message: string; remedy: string } | null;
  progress: { vaultsTotal: number; vaultsDone: number; vaultsFailed: number; assetsFound: number };
  subscriptionOutcomes: {
    subscriptionId: string;
    name: string | null;
    failure: { code: string; remedy: string } | null;
  }[];
}

/** Runs a scan through the REST API with a progress bar, and prints the results. */
export async function runScan(
  serviceUrl: string,
  administrator: { username: string; password: string },
): Promise<void> {
  const api = await signInAsAdministrator(serviceUrl, administrator);

  const scanId = await startScanOrGetRunning(api);
  let scan: Scan;
  do {
    await delay(POLL_MS);
    scan = await api<Scan>("GET", `/api/assets/discovery/scan/${scanId}/status`);
    drawProgress(scan);
  } while (scan.status === "queued" || scan.status === "running");
  const { assetsFound, vaultsTotal } = scan.progress;
  const subscriptions = scan.subscriptionOutcomes;
  const readCount = subscriptions.filter(({ failure }) => failure === null).length;
  console.log(
    `\n\nThe scan is ${scan.status}: ${assetsFound} assets in ${vaultsTotal} vaults of ${readCount} of ${subscriptions.length} subscriptions.`,
  );
  if (scan.failure) console.log(`${scan.failure.message} ${scan.failure.remedy}`);
  await printFailures(api, scan);
  await discoverApplications(api);
  await printCoverage(api, serviceUrl);
  await printHealth(api);
  await printExpiringSoon(api);
}

/** Starts a scan, or returns the ID of the scan that is already running. */
async function startScanOrGetRunning(api: Api): Promise<string> {
  try {
    return (await api<Scan>("POST", "/api/assets/discovery/scan", { mode: "full" })).scanId;
  } catch (error) {
    if (error instanceof ApiError && typeof error.problem.scanId === "string") return error.problem.scanId;
    throw error;
  }
}

/** Draws the progress bar over the previous one, or on a new line if the output is not a terminal. */
function drawProgress({ status, progress }: Scan): void {
  const barWidth = 32;
  const share = progress.vaultsTotal === 0 ? 0 : progress.vaultsDone / progress.vaultsTotal;
  const bar = "█".repeat(Math.round(share * barWidth)).padEnd(barWidth, "░");
  const line = `  ${bar} ${progress.vaultsDone}/${progress.vaultsTotal} vaults, ${progress.assetsFound} assets (${status})`;
  process.stdout.write(process.stdout.isTTY ? `\r${line.padEnd(100)}` : `${line}\n`);
}

interface ResultPage {
  items: { vaultName: string; failures: { code: string; remedy: string }[] }[];
  nextCursor: string | null;
}

/** Prints the subscriptions and vaults that the scan could not read, with the remedy. */
async function printFailures(api: Api, { scanId, subscriptionOutcomes }: Scan): Promise<void> {
  const lines = subscriptionOutcomes.flatMap(({ subscriptionId, name, failure }) => {
    const id = name === null ? subscriptionId : `${name} (${subscriptionId})`;
    return failure ? [`  Subscription ${id}: ${failure.code}. ${failure.remedy}`] : [];
  });
  for (let cursor: string | null = ""; cursor !== null; ) {
    const next: string = cursor && `&cursor=${cursor}`;
    const page: ResultPage = await api("GET", `/api/assets/discovery/scan/${scanId}/results?limit=1000${next}`);
    for (const { vaultName, failures } of page.items) {
      const codes = [...new Set(failures.map(({ code }) => code))].join(", ");
      if (failures[0]) lines.push(`  Vault ${vaultName}: ${codes}. ${failures[0].remedy}`);
    }
    cursor = page.nextCursor;
  }
  if (lines.length > 0) console.log(["\nThe scan could not read:", ...lines].join("\n"));
}

/** With a PRO license, discovers the credentials of applications, so that the inventory contains them too. */
async function discoverApplications(api: Api): Promise<void> {
  if ((await api<{ tier: string }>("GET", "/system/license/status")).tier !== "pro") return;
  const { status, apps, credentials, failures } = await api<{
    status: string;
    apps: number | null;
    credentials: number | null;
    failures: { list: string; code: string; remedy: string }[];
  }>("POST", "/api/automation/rotation/discover");
  console.log(`\nThe discovery of applications is ${status}: ${apps ?? 0} with ${credentials ?? 0} credentials.`);
  for (const { list, code, remedy } of failures) console.log(`  ${list}: ${code}. ${remedy}`);
}

/** Prints how much of the company the service reads, as the first line of the Overview page does. */
async function printCoverage(api: Api, serviceUrl: string): Promise<void> {
  const { complete, summary, gapsTotal } = await api<{ complete: boolean; summary: string; gapsTotal: number }>(
    "GET",
    "/api/coverage",
  );
  const gaps = `${gapsTotal} ${gapsTotal === 1 ? "gap" : "gaps"}; the page names each with its fix: ${serviceUrl}/`;
  console.log(`\nCoverage: ${summary}. ${complete ? "Everything was read." : gaps}`);
}

/** Prints the number of assets by type and health. */
async function printHealth(api: Api): Promise<void> {
  const statuses = ["expired", "critical", "warning", "healthy"] as const;
  const types = ["secret", "key", "certificate"] as const;
  const countAssets = async (query: string) =>
    (await api<{ total: number }>("GET", `/api/assets/discovery/assets?limit=1&${query}`)).total;
  const rows: string[][] = [["", ...statuses, "total"]];
  for (const type of types) {
    const counts = await Promise.all(statuses.map((status) => countAssets(`type=${type}&status=${status}`)));
    rows.push([`${type}s`, ...counts.map(String), String(counts.reduce((sum, count) => sum + count, 0))]);
  }
  const sums = rows[0]!
    .slice(1)
    .map((_, column) => rows.slice(1).reduce((sum, row) => sum + Number(row[column + 1]), 0));
  rows.push(["all", ...sums.map(String)]);
  console.log("\nHealth of the inventory\n");
  printTable(rows);
}

interface Expiring {
  id: string;
  type: string;
  expiresOn: string;
  daysUntilExpiry: number;
  owner: string | null;
  credential?: { applicationName: string };
}

/** Prints the ten assets that expire next. */
async function printExpiringSoon(api: Api): Promise<void> {
  const { items } = await api<{
    items: Expiring[];
  }>("GET", `/api/assets/discovery/assets?limit=10&sort=expiresOn&expiresAfter=${new Date().toISOString()}`);
  if (items.length === 0) return;
  console.log("\nExpiring soon\n");
  printTable([
    ["asset", "expires", "days", "owner"],
    ...items.map((item) => [
      item.credential ? `${item.credential.applicationName} (${item.type} of an application)` : item.id,
      item.expiresOn.slice(0, 16).replace("T", " "),
      String(item.daysUntilExpiry),
      item.owner ?? "-",
    ]),
  ]);
}

import pMap from "p-map";
import type { BrowserContext, CDPSession, Page } from "playwright-core";
import type { AssetRecord } from "../../shared/inventory/asset.ts";
import { createInventoryWriter } from "../../shared/inventory/write.ts";
import { createTables } from "../../shared/platform/storage/tables.ts";
import { DAY_SECONDS } from "../../shared/platform/time.ts";
import { assetRecord, vaultRecord, writeVault } from "../../test/inventory/write-assets.ts";
import { openBrowser } from "../../test/support/browser.ts";
import { ADMIN, Service } from "../../test/support/service.ts";
import { atMost, type Figure, megabytes, type Section } from "./section.ts";

/** Number of vaults. Set `BENCH_PAGE_VAULTS` to measure fewer. */
const VAULTS = Number(process.env.BENCH_PAGE_VAULTS ?? 100);
const ASSETS_OF_ONE = 1_000;
const ASSETS = VAULTS * ASSETS_OF_ONE;
const ROW_PX = 40;
const KIBIBYTE = 1024;
/** Calls per minute that the second walk may make, and the number of pages that it reads. It has to wait. */
const FEW_CALLS = 6;
const WAITING_PAGES = Math.min(8, VAULTS);
/** Timeout in milliseconds, because one of the waits is for the rate limit. */
const LONGEST_STEP_MS = 180_000;

/** Measures what the page transfers, and its memory while a user scrolls through 100,000 assets. */
export async function webPage(): Promise<Section> {
  // Uses the default rate limits of a deployment, so that the walk has to wait for them.
  const env = { RATE_LIMIT_PER_MINUTE: "60", RATE_LIMIT_PER_HOUR: "1000" };
  const [service, context] = await Promise.all([Service.start({ company: "small", env }), openBrowser()]);
  try {
    await fill(service);
    const page = await context.newPage();
    page.setDefaultTimeout(LONGEST_STEP_MS);
    const transfer = await firstView(page, service.url);
    const walk = await scrollThrough(page, await context.newCDPSession(page));
    const waiting = await waitingWalk(service, context);
    const [, half, whole] = walk.heaps as [number, number, number];
    const figures: Figure[] = [
      {
        what: "transferred until the overview is readable",
        value: `${(transfer.first / KIBIBYTE).toFixed(0)} KiB`,
        comparedWith: `${transfer.files} files, by Brotli`,
        bound: atMost(Math.ceil(transfer.first / KIBIBYTE), 250, " KiB"),
      },
      {
        what: "with charts, which load later",
        value: `${(transfer.all / KIBIBYTE).toFixed(0)} KiB`,
        comparedWith: "",
        bound: atMost(Math.ceil(transfer.all / KIBIBYTE), 300, " KiB"),
      },
      {
        what: "assets scrolled through",
        value: String(walk.rows),
        comparedWith: `${walk.pages} pages of 1,000; ${walk.refused} calls were answered 429, in ${walk.seconds} s`,
        bound: { text: "all of them", holds: walk.rows === ASSETS },
      },
      { what: "the page's memory at 10 %", value: megabytes(walk.heaps[0]!), comparedWith: "heap after a collection" },
      { what: "at 50 %", value: megabytes(half), comparedWith: "" },
      {
        what: "at 100 %",
        value: megabytes(whole),
        comparedWith: `${(whole / walk.heaps[0]!).toFixed(2)} of that at 10 %`,
        bound: atMost(whole / walk.heaps[0]!, 1.25),
      },
      {
        what: "most rows drawn at once",
        value: String(walk.mostRows),
        comparedWith: "a window of 1440 x 900",
        bound: atMost(walk.mostRows, 80),
      },
      {
        what: `pages read under a limit of ${FEW_CALLS} calls a minute`,
        value: String(waiting.pages),
        comparedWith: `${waiting.refused} calls were answered 429, and the page showed ${waiting.notices} notices, in ${waiting.seconds} s`,
        bound: {
          text: `at least ${WAITING_PAGES}, after a wait that is seen`,
          holds: waiting.pages >= WAITING_PAGES && waiting.refused > 0 && waiting.notices > 0,
        },
      },
    ];
    return {
      title: "The page",
      how: `Headless Chromium with ${ASSETS.toLocaleString("en")} assets and the default rate limits. Each step scrolls to the end of the loaded list as fast as answers arrive. The heap is that of the page after a full garbage collection.`,
      figures,
    };
  } finally {
    await context.close();
    await service.stop();
  }
}

/** Writes assets as scans do, without the calls to vaults. */
async function fill(service: Service): Promise<void> {
  const writer = createInventoryWriter({
    tables: createTables({ connectionString: service.azurite.connectionString() }),
  });
  const today = Math.floor(Date.now() / 1000);
  const writeOne = async (at: number) => {
    const vault = vaultRecord(`kv-${String(at).padStart(4, "0")}`);
    const assets: AssetRecord[] = Array.from({ length: ASSETS_OF_ONE }, (_, index) =>
      assetRecord(vault, "secret", `secret-${String(index).padStart(4, "0")}`, {
        expiresOn: today + ((at * 7 + index) % 700) * DAY_SECONDS,
        tags: { owner: `team-${at % 20}`, env: "prod" },
      }),
    );
    await writeVault(writer, vault, assets);
  };
  await pMap(Array.from({ length: VAULTS }).keys(), writeOne, { concurrency: 4 });
}

/** Signs in and opens the overview in a new browser. */
async function firstView(page: Page, url: string) {
  const sizes = new Map<string, number>();
  page.on("requestfinished", (request) => {
    if (!request.url().includes("/page/") && request.url() !== `${url}/`) return;
    // The browser may already be closed.
    void request.sizes().then(
      ({ responseBodySize }) => sizes.set(request.url(), responseBodySize),
      () => undefined,
    );
  });
  await page.setViewportSize({ width: 1440, height: 900 });
  await page.goto(url);
  await page.getByLabel("Username").fill(ADMIN.username);
  await page.getByLabel("Password").fill(ADMIN.password);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByText(ASSETS.toLocaleString("en"), { exact: true }).first().waitFor();
  await page.locator("svg text").first().waitFor();
  await page.waitForLoadState("networkidle");
  const all = [...sizes];
  const withCharts = all.findIndex(([address]) => address.includes("/chart-kinds-"));
  const sum = (of: [string, number][]) => of.reduce((total, [, size]) => total + size, 0);
  return { first: sum(all.slice(0, withCharts)), all: sum(all), files: withCharts };
}

/** Scrolls from the first row to the last, page by page. */
async function scrollThrough(page: Page, session: CDPSession) {
  const calls = countedCalls(page);
  let mostRows = 0;
  const started = performance.now();
  await page.evaluate("location.hash = '#/inventory'");
  await page.getByText(`${ASSETS.toLocaleString("en")} assets`, { exact: true }).waitFor();
  const list = page.getByRole("region", { name: "Assets" });
  const rowsKnown = () => list.evaluate((element, height) => Math.round(element.scrollHeight / height) - 1, ROW_PX);
  const heaps: number[] = [];
  for (let row = 0; row < ASSETS; row += 1_000) {
    const last = Math.min(row + 1_000, ASSETS);
    await scrollTo(page, last);
    mostRows = Math.max(mostRows, await page.getByRole("row").count());
    if ([0.1, 0.5, 1].some((part) => last === Math.round((part * ASSETS) / 1_000) * 1_000)) {
      await session.send("HeapProfiler.collectGarbage");
      heaps.push((await session.send("Runtime.getHeapUsage")).usedSize);
    }
  }
  return { rows: await rowsKnown(), ...calls(), heaps, mostRows, seconds: secondsSince(started) };
}

/** Scrolls under a limit that it reaches. The page shows a notice while it waits, and then continues. */
async function waitingWalk(service: Service, context: BrowserContext) {
  const { url } = await service.addHost({ RATE_LIMIT_PER_MINUTE: String(FEW_CALLS) });
  const page = await context.newPage();
  page.setDefaultTimeout(LONGEST_STEP_MS);
  await page.setViewportSize({ width: 1440, height: 900 });
  const calls = countedCalls(page);
  const started = performance.now();
  const notice = page.getByText("The page continues automatically at");
  let [notices, isSaid] = [0, false];
  await page.goto(`${url}/#/inventory`);
  for (let last = 1_000; last <= WAITING_PAGES * 1_000; last += 1_000)
    await scrollTo(page, last, async () => {
      const wasSaid = isSaid;
      isSaid = await notice.isVisible();
      if (isSaid && !wasSaid) notices++;
    });
  const seconds = secondsSince(started);
  await page.close();
  return { ...calls(), notices, seconds };
}

/** Number of pages of the list that were returned, and of calls for a page that were answered 429. */
function countedCalls(page: Page): () => { pages: number; refused: number } {
  let [pages, refused] = [0, 0];
  page.on("response", (response) => {
    if (!response.url().includes("/discovery/assets?")) return;
    if (response.status() === 429) refused++;
    else pages++;
  });
  return () => ({ pages, refused });
}

/** The list ends before a row until the page with that row is loaded. */
async function scrollTo(page: Page, row: number, meanwhile = async () => {}): Promise<void> {
  const list = page.getByRole("region", { name: "Assets" });
  const reached = page.locator(`[role=row][aria-rowindex="${row + 1}"] a`);
  const until = performance.now() + LONGEST_STEP_MS;
  while ((await reached.count()) === 0) {
    if (performance.now() > until) throw new Error(`Row ${row} did not come.`);
    await meanwhile();
    if ((await list.count()) > 0) await list.evaluate((element, top) => element.scrollTo({ top }), row * ROW_PX);
    await page.waitForTimeout(50);
  }
}

const secondsSince = (started: number): number => Math.round((performance.now() - started) / 1000);

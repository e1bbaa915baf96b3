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
const ASSETS_PER_VAULT = 1_000;
const ASSETS = VAULTS * ASSETS_PER_VAULT;
/** Assets that the web page requests per call. */
const PAGE_SIZE = 1_000;
/** Height of a row of the list. */
const ROW_PX = 40;
const KIBIBYTE = 1024;
/** Calls per minute of the test of the rate limit. It reads more pages than that, so the web page has to wait. */
const LOW_RATE_LIMIT = 6;
const RATE_LIMITED_PAGES = Math.min(8, VAULTS);
/** Timeout of each step. It is long, because the web page may wait for the rate limit. */
const STEP_TIMEOUT_MS = 180_000;

/**
 * Benchmark `page`: measures in a browser what the web page transfers at first, and its memory while a user scrolls through a
 * list of 100,000 assets. Also checks that the list continues after a wait for the rate limit.
 */
export async function webPage(): Promise<Section> {
  // Uses the default rate limits of a deployment.
  const env = { RATE_LIMIT_PER_MINUTE: "60", RATE_LIMIT_PER_HOUR: "1000" };
  const [service, context] = await Promise.all([Service.start({ company: "small", env }), openBrowser()]);
  try {
    await writeAssets(service);
    const page = await context.newPage();
    page.setDefaultTimeout(STEP_TIMEOUT_MS);
    const transfer = await openOverview(page, service.url);
    const scrolling = await scrollThrough(page, await context.newCDPSession(page));
    const limited = await scrollWithLowRateLimit(service, context);
    const [heapAt10, heapAt50, heapAt100] = scrolling.heaps as [number, number, number];
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
        value: String(scrolling.rows),
        comparedWith: `${scrolling.pages} pages of 1,000; ${scrolling.refused} calls were answered 429, in ${scrolling.seconds} s`,
        bound: { text: "all of them", holds: scrolling.rows === ASSETS },
      },
      { what: "the page's memory at 10 %", value: megabytes(heapAt10), comparedWith: "heap after a collection" },
      { what: "at 50 %", value: megabytes(heapAt50), comparedWith: "" },
      {
        what: "at 100 %",
        value: megabytes(heapAt100),
        comparedWith: `${(heapAt100 / heapAt10).toFixed(2)} of that at 10 %`,
        bound: atMost(heapAt100 / heapAt10, 1.25),
      },
      {
        what: "most rows drawn at once",
        value: String(scrolling.mostRows),
        comparedWith: "a window of 1440 x 900",
        bound: atMost(scrolling.mostRows, 80),
      },
      {
        what: `pages read under a limit of ${LOW_RATE_LIMIT} calls a minute`,
        value: String(limited.pages),
        comparedWith: `${limited.refused} calls were answered 429, and the page showed ${limited.notices} notices, in ${limited.seconds} s`,
        bound: {
          text: `at least ${RATE_LIMITED_PAGES}, after a wait that is seen`,
          holds: limited.pages >= RATE_LIMITED_PAGES && limited.refused > 0 && limited.notices > 0,
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

/** Writes vaults and assets as scans do, without calls to vaults. */
async function writeAssets(service: Service): Promise<void> {
  const writer = createInventoryWriter({
    tables: createTables({ connectionString: service.azurite.connectionString() }),
  });
  const nowSeconds = Math.floor(Date.now() / 1000);
  const writeOne = async (vaultIndex: number) => {
    const vault = vaultRecord(`kv-${String(vaultIndex).padStart(4, "0")}`);
    const assets: AssetRecord[] = Array.from({ length: ASSETS_PER_VAULT }, (_, index) =>
      assetRecord(vault, "secret", `secret-${String(index).padStart(4, "0")}`, {
        expiresOn: nowSeconds + ((vaultIndex * 7 + index) % 700) * DAY_SECONDS,
        tags: { owner: `team-${vaultIndex % 20}`, env: "prod" },
      }),
    );
    await writeVault(writer, vault, assets);
  };
  await pMap(Array.from({ length: VAULTS }).keys(), writeOne, { concurrency: 4 });
}

/**
 * Signs in, waits for the overview, and returns the compressed bytes of the web page's files. `first`: bytes until the file
 * with the charts. `all`: bytes including that file. `files`: number of files before it.
 */
async function openOverview(page: Page, url: string) {
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
  const filesInOrder = [...sizes];
  const chartFileIndex = filesInOrder.findIndex(([address]) => address.includes("/chart-kinds-"));
  const sum = (files: [string, number][]) => files.reduce((total, [, size]) => total + size, 0);
  return { first: sum(filesInOrder.slice(0, chartFileIndex)), all: sum(filesInOrder), files: chartFileIndex };
}

/** Scrolls from the first row to the last, page by page. Measures the heap after 10, 50 and 100 % of the rows. */
async function scrollThrough(page: Page, session: CDPSession) {
  const readCounts = countListCalls(page);
  let mostRows = 0;
  const started = performance.now();
  await page.evaluate("location.hash = '#/inventory'");
  await page.getByText(`${ASSETS.toLocaleString("en")} assets`, { exact: true }).waitFor();
  const list = page.getByRole("region", { name: "Assets" });
  // The height of the list includes its heading, which is as high as a row.
  const countLoadedRows = () =>
    list.evaluate((element, height) => Math.round(element.scrollHeight / height) - 1, ROW_PX);
  const heaps: number[] = [];
  for (let row = 0; row < ASSETS; row += PAGE_SIZE) {
    const lastRow = Math.min(row + PAGE_SIZE, ASSETS);
    await scrollTo(page, lastRow);
    mostRows = Math.max(mostRows, await page.getByRole("row").count());
    if ([0.1, 0.5, 1].some((share) => lastRow === Math.round((share * ASSETS) / PAGE_SIZE) * PAGE_SIZE)) {
      await session.send("HeapProfiler.collectGarbage");
      heaps.push((await session.send("Runtime.getHeapUsage")).usedSize);
    }
  }
  return { rows: await countLoadedRows(), ...readCounts(), heaps, mostRows, seconds: secondsSince(started) };
}

/**
 * Scrolls with a rate limit that is soon reached. The web page then shows a notice, waits, and continues. Returns how often the
 * notice appeared, and the counts of calls.
 */
async function scrollWithLowRateLimit(service: Service, context: BrowserContext) {
  const { url } = await service.addHost({ RATE_LIMIT_PER_MINUTE: String(LOW_RATE_LIMIT) });
  const page = await context.newPage();
  page.setDefaultTimeout(STEP_TIMEOUT_MS);
  await page.setViewportSize({ width: 1440, height: 900 });
  const readCounts = countListCalls(page);
  const started = performance.now();
  const notice = page.getByText("The page continues automatically at");
  let [notices, isNoticeVisible] = [0, false];
  await page.goto(`${url}/#/inventory`);
  for (let lastRow = PAGE_SIZE; lastRow <= RATE_LIMITED_PAGES * PAGE_SIZE; lastRow += PAGE_SIZE)
    await scrollTo(page, lastRow, async () => {
      const wasNoticeVisible = isNoticeVisible;
      isNoticeVisible = await notice.isVisible();
      if (isNoticeVisible && !wasNoticeVisible) notices++;
    });
  const seconds = secondsSince(started);
  await page.close();
  return { ...readCounts(), notices, seconds };
}

/**
 * Counts the calls of the asset list from now on. The returned function returns the number of pages that were returned, and of
 * calls that were answered 429.
 */
function countListCalls(page: Page): () => { pages: number; refused: number } {
  let [pages, refused] = [0, 0];
  page.on("response", (response) => {
    if (!response.url().includes("/discovery/assets?")) return;
    if (response.status() === 429) refused++;
    else pages++;
  });
  return () => ({ pages, refused });
}

/**
 * Scrolls down until the given row is visible. Repeats the scrolling, because the list ends earlier until the page with the row
 * is loaded. Calls `whileWaiting` before each attempt.
 */
async function scrollTo(page: Page, row: number, whileWaiting = async () => {}): Promise<void> {
  const list = page.getByRole("region", { name: "Assets" });
  const rowLink = page.locator(`[role=row][aria-rowindex="${row + 1}"] a`);
  const deadline = performance.now() + STEP_TIMEOUT_MS;
  while ((await rowLink.count()) === 0) {
    if (performance.now() > deadline) throw new Error(`Row ${row} did not appear.`);
    await whileWaiting();
    if ((await list.count()) > 0) await list.evaluate((element, top) => element.scrollTo({ top }), row * ROW_PX);
    await page.waitForTimeout(50);
  }
}

const secondsSince = (started: number): number => Math.round((performance.now() - started) / 1000);

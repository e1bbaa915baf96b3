import { expect, test } from "vitest";
import { byUrgency, type Item } from "../../shared/alerts/items.ts";

/** Tests of the order of the items in an alert. Each list is in the expected order. */

/** Items with only the members that determine their order. */
const asset = (id: string, expiresOn: number) => ({ kind: "asset", id, expiresOn }) as Item;
const credential = (id: string, expiresOn: number) => ({ kind: "credential", id, expiresOn }) as Item;
const violation = (id: string, severity: string) => ({ kind: "violation", id, severity }) as Item;
const automation = (id: string) => ({ kind: "automation", id }) as Item;
const scan = (id: string) => ({ kind: "scan", id }) as Item;
const renewed = (id: string, expiresOn: number) => ({ kind: "renewed", id, of: asset(id, expiresOn) }) as Item;

test.each<[string, Item[]]>([
  ["assets by expiry, then by id", [asset("c", 1), asset("a", 2), asset("b", 2), asset("d", 2)]],
  ["credentials by expiry, then by id", [credential("c", 1), credential("a", 2), credential("b", 2)]],
  ["violations by severity, then by id", [violation("c", "critical"), violation("a", "high"), violation("b", "high")]],
  [
    "events of rotations and syncs by id, which starts with the time",
    [automation("a"), automation("b"), automation("c")],
  ],
  ["scans by id, newest first", [scan("c"), scan("b"), scan("a")]],
  ["new alerts before changes of earlier alerts", [asset("z", 9), renewed("b", 1), renewed("a", 2)]],
])("items are sorted by urgency: %s", (_, items) => {
  expect(items.toReversed().sort(byUrgency)).toEqual(items);
  expect([...items].sort(byUrgency)).toEqual(items);
});

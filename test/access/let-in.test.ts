import { expect, test } from "vitest";
import { createLetIn } from "../../shared/access/let-in.ts";

test("the least recently used address is removed when there are too many", () => {
  const letIn = createLetIn();
  for (let index = 0; index < 1_000; index++) letIn.add(`address ${index}`);
  letIn.add("address 0");
  letIn.add("another");
  expect(["address 0", "address 1", "address 2", "another"].map(letIn.has)).toEqual([true, false, true, true]);
});

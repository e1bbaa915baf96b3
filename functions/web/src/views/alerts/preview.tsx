import { Text } from "@fluentui/react-components";
import type { Schemas } from "../../api/client.ts";
import { Instant } from "../../parts/instant.tsx";
import { counted } from "../../parts/plural.ts";
import { Item } from "./item.tsx";

/**
 * The notification that a rule would send now, and the time of its next evaluation: in the form and on the page of the rule.
 * `totalAtLeast` replaces `total` if the number of items is not known.
 */
export function Preview({ of: preview }: { of: Schemas["AlertPreview"] }) {
  const { total, totalAtLeast = 0, items, isFirst, evaluatedAt, next } = preview;
  const count = total ?? totalAtLeast;
  return (
    <>
      <Text block>
        {count === 0
          ? "The rule would send no alerts now."
          : `The rule would send ${total === null ? "at least " : ""}${counted(count, "alert")} now${isFirst ? ", when it is evaluated for the first time" : ""}:`}
      </Text>
      <ul>
        {items.slice(0, MAX_SHOWN_ITEMS).map((item) => (
          <li key={`${item.kind} ${item.id}`}>
            <Item item={item} />
          </li>
        ))}
        {count > MAX_SHOWN_ITEMS && <li>and {(count - MAX_SHOWN_ITEMS).toLocaleString()} more</li>}
      </ul>
      <Text block>
        {evaluatedAt === null ? (
          "This rule is disabled."
        ) : (
          <>
            Next evaluation: <Instant at={evaluatedAt} relative />.
          </>
        )}{" "}
        {next && (
          <>
            Next alert: <Item item={next.item} />, will be sent <Instant at={next.at} relative />.
          </>
        )}
      </Text>
    </>
  );
}

const MAX_SHOWN_ITEMS = 10;

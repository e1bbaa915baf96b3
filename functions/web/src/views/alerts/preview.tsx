import { Text } from "@fluentui/react-components";
import type { Schemas } from "../../api/client.ts";
import { Instant } from "../../parts/instant.tsx";
import { Item } from "./item.tsx";

/** The notification that a rule would send now, and the time of its next evaluation. */
export function Preview({ of: preview }: { of: Schemas["AlertPreview"] }) {
  const { total, totalAtLeast = 0, items, isFirst, evaluatedAt, next } = preview;
  const count = total ?? totalAtLeast;
  return (
    <>
      <Text block>
        {count === 0
          ? "The rule would send nothing now."
          : `The rule would send ${total === null ? "at least " : ""}${count.toLocaleString()} ${count === 1 ? "item" : "items"} now${isFirst ? ", on its first evaluation" : ""}:`}
      </Text>
      <ul>
        {items.slice(0, SHOWN).map((item) => (
          <li key={`${item.kind} ${item.id}`}>
            <Item item={item} />
          </li>
        ))}
        {count > SHOWN && <li>and {(count - SHOWN).toLocaleString()} more</li>}
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
            Next item: <Item item={next.item} />, reaches a threshold <Instant at={next.at} relative />.
          </>
        )}
      </Text>
    </>
  );
}

const SHOWN = 10;

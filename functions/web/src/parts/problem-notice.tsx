import { Button, MessageBar, MessageBarActions, MessageBarBody, MessageBarTitle } from "@fluentui/react-components";
import type { Problem } from "../api/client.ts";
import { Instant } from "./instant.tsx";

interface Props {
  problem: Problem;
  retry?: () => void;
  /** When that was answered which still stands below. */
  shownFrom?: Date;
}

/** What went wrong and what to do, in the API's words, with the request id to ask about. */
export function ProblemNotice({ problem, retry, shownFrom }: Props) {
  const { title, detail, errors = [], instance } = problem;
  return (
    <MessageBar intent="error" layout="multiline" role="alert">
      <MessageBarBody>
        <MessageBarTitle>{title}</MessageBarTitle>
        {detail}
        {errors.length > 0 && (
          <ul>
            {errors.map(({ path, message }) => (
              <li key={`${path} ${message}`}>
                {path}: {message}
              </li>
            ))}
          </ul>
        )}
        {shownFrom && (
          <div>
            What is shown below was read <Instant at={shownFrom.toISOString()} relative />.
          </div>
        )}
        {instance !== "" && <div>Request {instance}</div>}
      </MessageBarBody>
      {retry && (
        <MessageBarActions>
          <Button onClick={retry}>Try again</Button>
        </MessageBarActions>
      )}
    </MessageBar>
  );
}

"""What `hud-tui --headless status` asks for, asked by as little code as does it.

The other side of bench_headless: httpx, json and four GETs.
"""

import json
import os

import httpx


def main() -> None:
    headers = {"Authorization": f"Bearer {os.environ['HUD_API_KEY']}"}
    with httpx.Client(base_url=os.environ["HUD_API_URL"], headers=headers) as http:

        def get(path: str) -> object:
            answer = http.get(path)
            answer.raise_for_status()
            return json.loads(answer.content)

        models = get("/v2/models?limit=100&offset=0")
        jobs = get("/v2/jobs?limit=20&offset=0")
        model_id = jobs["items"][0]["metadata"]["model_id"]  # type: ignore[index]
        tree = get(f"/v2/models/{model_id}/checkpoints")
        job = get(f"/v1/training/jobs/{model_id}/raw-status")
    print(json.dumps({"models": models, "tree": tree, "job": job}))


if __name__ == "__main__":
    main()

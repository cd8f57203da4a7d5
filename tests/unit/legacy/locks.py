"""Lock files of every version, as short as they can be."""

V1_0 = """\
version: '1.0'
image: hudpython/hud-text-2048@sha256:3a67
build:
  generatedAt: '2025-08-24T03:42:45.354794Z'
  hudVersion: 0.4.0
  directory: text_2048
environment:
  initializeMs: 3229
  toolCount: 3
  variables:
    _note: You can edit this section
    provided:
      ANCHOR_API_KEY: sk-not-to-be-shown
    required:
    - OPENAI_API_KEY
tools:
- name: setup
  description: "Call internal 'setup' functions. Available tools:\\n\\n\\u2022 Name:\\
    \\ board"
- name: evaluate
- name: move
  description: Slide the tiles in a direction
push:
  source: hud-text-2048:dev
  pushedAt: '2025-08-24T03:44:12.745295Z'
  registry: hudpython
"""

V1_1 = """\
version: '1.1'
images:
  local: browser:0.1.0
  full: browser:0.1.0@sha256:5612
  pushed: null
build:
  generatedAt: 2025-11-24T01:36:13.480264+00:00Z
  directory: browser
  sourceFiles:
  - Dockerfile
environment:
  toolCount: 1
  variables:
    provided: {}
    required: []
tools:
- name: playwright
  description: Web automation
  inputSchema:
    properties:
      action:
        type: string
      url:
        anyOf:
        - type: string
        - type: 'null'
        default: null
    required:
    - action
    type: object
"""

V1_2 = (
    V1_1.replace("'1.1'", "'1.2'")
    + """\
hubTools:
  setup:
  - load
push:
  image_with_tag: someone/browser:0.1.0
"""
).replace("tools:\n", "tools:\n- name: setup\n", 1)

V1_3 = """\
version: 1.3
images: {local: 'cards:0.2', full: 'cards:0.2@sha256:9', pushed: 'registry.example/org/cards:0.2'}
build: {platform: linux/amd64, baseImage: python:3.12, buildId: b-1, directory: cards}
environment: {toolCount: 2, internalToolCount: 1}
tools:
- name: evaluate
  internalTools: [score]
- name: deal
prompts: []
resources: []
scenarios:
- name: cards:blackjack
  description: Play a hand
- cards:poker
primary_dataset:  # chosen in spring
  name: org/cards  # the good one
  task_count: 40
  updated_at: '2026-03-01T10:00:00'
"""

ALL = {"1.0": V1_0, "1.1": V1_1, "1.2": V1_2, "1.3": V1_3}
